// Package eventlog is an append-only log of events in streams, kept in the
// application's own database, which is PostgreSQL or SQLite: on others its calls
// return an errors.ErrUnsupported.
//
// A [Log] appends events in the caller's transaction, at an expected version of
// their stream; consumers that are registered for an event run as for any other
// message. [Types] knows the events and brings old ones up to date. Each event
// gets a position in the order of the whole log once it is committed, without
// gaps: a reader that is at a position has missed nothing.
//
// What reads the log in order is package eventlog/projection, what decides on new events is
// package eventlog/decider. This package runs nothing in the background and does not speak SQL.
package eventlog
