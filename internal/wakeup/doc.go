// Package wakeup tells the processors of a process what was committed in it.
package wakeup
