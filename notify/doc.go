// Package notify wakes the processors and projections of other processes through
// PostgreSQL's NOTIFY, so that a message or an event does not wait there for the
// next poll. It is optional.
//
// A [Notifier] sends after the commit, never in an application's transaction, as
// few notifications as a fifth of the time allows, and recognizes its own. It checks
// that it hears itself. Notifications are hints: they carry nothing of a message, and without
// them processors find everything by polling, as before.
//
// It neither reads nor writes messages. It imports no driver: a [Listener] is
// given to it, such as that of the module notify/pgxnotify.
package notify
