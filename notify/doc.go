// Package notify wakes the processors and projections of other processes through PostgreSQL's
// NOTIFY, so that a message or an event does not wait for the next poll. It is optional.
//
// A [Notifier] sends after the commit, never in an application's transaction, and spends at most a
// fifth of its time on sending. It ignores its own notifications, and checks that it receives
// them. Notifications are hints: they contain nothing of a message, and without them processors
// find everything by polling.
//
// It neither reads nor writes messages. It imports no driver: pass it a [Listener], such as that
// of the module notify/pgxnotify.
package notify
