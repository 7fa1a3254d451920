// Package errorlog is the list of errors that a message carries: the last failed runs, as
// JSON, each cut to what can be stored.
package errorlog
