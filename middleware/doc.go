// Package middleware provides the standard layers of the consume chain: logging, retries,
// poisoning, panic recovery and timeouts. [Default] puts them in order.
//
// Every layer is optional and can be replaced by your own. The only I/O of these layers is logging.
package middleware
