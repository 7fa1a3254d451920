// Package poison is the place from which people look at poisoned messages,
// requeue them, with an edited payload if need be, or discard them.
//
// It poisons nothing: the processor of package outbox moves a message here when its attempts,
// or its owners' lives, are used up.
package poison
