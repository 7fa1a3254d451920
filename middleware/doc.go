// Package middleware provides the standard layers of the consume chain: logging, retries,
// poisoning, panic recovery and timeouts. [Default] puts them in order.
//
// Every layer is optional: without it, its behaviour is gone, and a replacement takes its place.
// Layers do no I/O but logging.
package middleware
