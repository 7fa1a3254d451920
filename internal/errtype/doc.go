// Package errtype names the kinds of errors, and tells which failures belong together, for those who
// count them. Its functions are safe for concurrent use.
package errtype
