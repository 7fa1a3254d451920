package bus

import "time"

// Keep keeps consumed messages for a time: more than 0. A message that is done, discarded or expired
// moves to the table consumed_messages in the transaction that removes it, with its outcome, attempts,
// run time, headers, and the version of the program. admin.Client.Consumed lists them. Processors
// delete them after d. Payloads are kept with [KeepPayload] only. Defaults to keeping nothing.
//
// A poisoned message is not kept here: see package poison. Neither is one that an operator cancels
// while it waits.
func Keep(d time.Duration) ConsumerOption {
	return func(c *ConsumerConfig) { set(c, "Keep", &c.Keep, d) }
}

// KeepPayload makes [Keep] keep payloads, too, as they are stored: an encrypting codec keeps them
// encrypted. admin.Client.Repeat needs it. Without Keep, [NewRegistry] returns an [ErrInvalidOption].
func KeepPayload() ConsumerOption {
	return func(c *ConsumerConfig) { c.KeepPayload = true }
}
