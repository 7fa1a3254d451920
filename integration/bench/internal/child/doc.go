// Package child runs a part of a measurement in a process of its own: this
// program, started again.
//
// The parent writes the request into the environment and drives the child by
// lines on its standard input: "go" starts the work, "mark" starts what is
// measured, and the end of the input ends it. The child answers "ready", and at
// the end with one [Response].
package child
