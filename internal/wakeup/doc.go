// Package wakeup tells the processors of a process what was committed in it.
//
// It may import only the standard library.
package wakeup
