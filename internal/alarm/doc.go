// Package alarm tells a loop when to look next, where others may want it sooner.
//
// It may import only the standard library.
package alarm
