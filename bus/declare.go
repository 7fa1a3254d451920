package bus

// Declare names a consumer that another program runs, so that this program writes its messages.
// Register it beside the consumers that [Consume] makes. Declaring a consumer that is also
// registered has no effect, so programs may share a list. Declare a consumer of several payload
// types once for each.
//
// A processor warns when it gets messages whose producer does not know one of its consumers.
//
// Only options that affect how messages are written count: [Ordered], [KeyConcurrency], [Fair],
// [KeyRateLimit], [Prioritized] and [Forwards].
func Declare[T Payload](name string, options ...ConsumerOption) Consumer {
	c := consumerOf[T](name)
	c.declared = true
	c.set(false, options)
	return c
}
