// Package flow resolves the consumer options that decide when a message may run: circuits,
// deadlines, limits, rates and blocked keys. The engine applies them, and package admin explains
// them.
package flow
