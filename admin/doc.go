// Package admin shows pending messages, explains why one does not run ([Client.Explain]), and lists
// what processes report. It cancels, reschedules and runs messages, and pauses consumers. Package
// poison handles poisoned messages. Package ops adds permissions, an audit log and bulk operations.
package admin
