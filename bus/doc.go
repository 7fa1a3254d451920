// Package bus defines payloads, messages and consumers, the middleware around handlers and produce
// functions, and the registry of an application's consumers.
//
// It does no I/O: package outbox writes and runs messages, package middleware has the ready-made
// layers.
package bus
