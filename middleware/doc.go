// Package middleware provides the standard layers of the consume chain: logging, retries,
// poisoning, panic recovery and timeouts. [Default] puts them in order.
//
// Every layer is optional and can be replaced by your own. Without a layer its behaviour is missing.
// Layers do no I/O but logging.
package middleware
