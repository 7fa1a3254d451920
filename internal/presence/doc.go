// Package presence has a run tell the database that it is there, and what has become of messages
// since it last did, for people to look at. Nothing of the library depends on what it writes, and
// nothing waits for it.
package presence
