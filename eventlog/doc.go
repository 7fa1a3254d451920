// Package eventlog is an append-only log of events in streams, stored in the application's own
// PostgreSQL or SQLite database. On other databases its calls return errors.ErrUnsupported.
//
// A [Log] appends events in the caller's transaction, at an expected version of their stream.
// Registered consumers of an event run as for any other message. [Types] registers the events and
// upcasts old ones. After its commit each event gets a position in the whole log. Positions have
// no gaps: a reader at a position has missed no event before it.
//
// Package eventlog/projection reads the log in order, and package eventlog/decider decides on new
// events. This package runs nothing in the background.
package eventlog
