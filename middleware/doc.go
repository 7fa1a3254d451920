// Package middleware provides the standard layers of the consume chain: logging, retries,
// poisoning, panic recovery and timeouts. [Default] puts them in order.
//
// Every layer is optional. Without a layer its behaviour is missing; your own layer can take its
// place. Layers do no I/O but logging.
package middleware
