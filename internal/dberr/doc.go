// Package dberr says what the error of a database means: whether the statement may
// succeed when it is sent again, whether the server is there, whether the connection can
// be used. Drivers are recognised by their errors' methods and fields, so that none is
// imported.
package dberr
