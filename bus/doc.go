// Package bus holds the vocabulary of AsyncMonolith: what a payload, a message
// and a consumer are, how handlers and produce functions are wrapped in middleware, and
// the registry that knows every consumer of a payload.
//
// It does no I/O: package outbox writes and runs messages, package middleware has the
// ready-made layers.
package bus
