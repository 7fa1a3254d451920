// Package poison lists poisoned messages, requeues them, optionally with an edited payload, and
// discards them.
//
// It poisons no messages itself. The processor of package outbox moves a message here when its
// attempts are used up, or when it has crashed too often.
package poison
