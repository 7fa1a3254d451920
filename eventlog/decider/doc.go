// Package decider turns commands into events. A [Decider] has one function that builds a state
// from events, one that decides on new events by that state, and one for the initial state.
//
// [Handle] works in the caller's transaction. [Execute] uses its own, and retries if the stream
// was appended to meanwhile. Nothing is kept between calls: the state is read from the stream, or
// from a snapshot and the events after it.
//
// For read models, see package eventlog/projection.
package decider
