// Package logpoll is the loop with which projections and log forwarders find events to read. It
// polls the log, and at once after a wake-up, and assigns positions to new events first.
package logpoll
