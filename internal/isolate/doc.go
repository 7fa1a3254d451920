// Package isolate runs functions that may panic, end their goroutine or never return on a
// goroutine of their own. The caller is told of each as an error.
//
// It does not decide when a function has had its time.
package isolate
