// Package limits is what can be stored: how long things may be, and what text a column of
// every database takes.
//
// It may import only the standard library.
package limits
