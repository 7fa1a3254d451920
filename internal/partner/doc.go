// Package partner runs functions that may panic, end their goroutine or never
// return on a goroutine beside the caller's, who gets to know of each as an error.
//
// It does not decide when a function has had its time. It may import only bus.
package partner
