// Package decider turns commands into events: a [Decider] is three functions, of
// which one makes a state of events and one decides, by that state, on new events.
//
// [Handle] does it in the caller's transaction and [Execute] in one of its own, which it repeats if
// the stream was appended to meanwhile. Nothing is held between calls: the state is read from the
// stream, or from a snapshot and the events after it.
//
// It keeps no read models, that is package eventlog/projection.
package decider
