// Package connect opens the database that a DSN names, with the settings that the library needs, and
// keeps what is secret about it out of what people read.
//
// It runs no statement.
package connect
