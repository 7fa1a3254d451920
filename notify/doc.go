// Package notify wakes the processors and projections of other processes through PostgreSQL's
// NOTIFY, so that a message or an event does not wait for the next poll. It is optional.
//
// A [Notifier] sends after the commit, never in an application's transaction. After each notification
// it pauses for four times as long as sending took, from 1 ms to 20 ms. It notifies itself every
// 30 s, to check that it receives notifications. Notifications carry no message content. Processors
// also poll, so a lost notification only causes a delay.
//
// It neither reads nor writes messages. It imports no driver: pass it a [Listener], such as that
// of the module notify/pgxnotify.
package notify
