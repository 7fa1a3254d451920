// Package connect opens the database that a DSN names, with the settings that the library needs, and
// keeps what is secret about it out of what people read.
//
// It runs no statement. It may import only internal/dberr, drivers, and the packages of bun for their
// databases.
package connect
