// Package poison lists poisoned messages, requeues them, optionally with an edited payload, and
// discards them.
//
// It poisons no messages itself. The processor of package outbox moves a message here when its
// attempts are used up, its error is permanent, its payload cannot be decoded, it crashed too
// often, or its deadline passed (outbox.DeliverBy with bus.Poisoned).
package poison
