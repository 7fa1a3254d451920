// Package middleware holds the ready-made layers of the consume chain, one per
// file, and [Default], which puts them in order.
//
// Every layer really is middleware: leave one out and its behaviour is gone,
// replace it and yours takes its place. It does no I/O but logging.
package middleware
