// Package flow resolves the options of consumers that decide when a message may run: circuits, deadlines,
// limits, rates and blocked keys. The engine goes by them, and package admin explains them.
package flow
