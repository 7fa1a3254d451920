// Package admin shows what happens to messages, and changes it: which messages wait and why one does not run
// ([Client.Explain]), what processes report, and what to do about it: cancel, reschedule, run now, pause a
// consumer. Poisoned messages are in package poison, and package ops adds permissions, an audit and bulk
// operations.
package admin
