// Package alarm has a loop look at given times, and sooner when callers ask for it.
package alarm
