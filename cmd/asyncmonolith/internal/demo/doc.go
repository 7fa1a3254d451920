// Package demo makes a database with the life of a shop in it: messages that run, wait, fail and are
// poisoned, for people who have no system of their own to look at yet. Nearly all of it really happens,
// by the library's own packages; past.go writes what would take too long to wait for.
package demo
