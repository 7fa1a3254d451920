// Package alarm tells a loop when to look next, where others may want it sooner.
package alarm
