// Package poison lists poisoned messages, requeues them, optionally with an edited payload, and
// discards them.
//
// The processor of package outbox poisons a message when its attempts are used up, its error is
// permanent, its payload cannot be decoded, it crashed too often, or its deadline passed
// (outbox.DeliverBy with bus.Poisoned).
package poison
