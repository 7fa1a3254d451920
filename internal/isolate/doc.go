// Package isolate runs functions that may panic, end their goroutine or never return on a goroutine
// of their own. The caller gets each of these as an error.
//
// It does not decide when a function has had its time.
package isolate
