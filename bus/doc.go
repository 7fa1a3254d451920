// Package bus declares what an application sends and consumes: payloads, consumers with their
// options, the middleware around both, and the [Registry] of an application's consumers.
//
// It does no I/O. Package outbox writes and runs the messages, and package middleware has ready-made
// layers.
package bus
