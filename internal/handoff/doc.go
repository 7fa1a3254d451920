// Package handoff connects the producers of a process with its processors: messages that a
// transaction has written may run here as soon as it commits, without a claim by a fetcher.
package handoff
