// Package limits is what can be stored: how long things may be, and what text a column of
// every database takes.
package limits
