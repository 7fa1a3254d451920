// Package errtype names the kinds of errors, and tells which failures belong together, for those who
// count them. Its functions are safe for concurrent use.
//
// It may import only bus and internal/isolate.
package errtype
