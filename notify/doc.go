// Package notify wakes the processors and projections of other processes through PostgreSQL's
// NOTIFY, so that a message or an event does not wait for the next poll. It is optional.
//
// A [Notifier] sends after the commit, never in an application's transaction, and limits sending to
// a fifth of its time. It ignores its own notifications, and checks that it receives them.
// Notifications carry no message content. Processors also poll, so a lost notification only causes
// a delay.
//
// It neither reads nor writes messages. It imports no driver: pass it a [Listener], such as that
// of the module notify/pgxnotify.
package notify
