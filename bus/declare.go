package bus

// Declare names a consumer that another program runs, so that this one writes its messages:
// to be registered beside those that [Consume] makes. To declare one that is registered here
// changes nothing, so programs may share a list. A consumer of several payload types is
// declared once for each.
//
// A processor warns when it gets messages whose producer does not know one of its consumers.
//
// Of the options only those count that say how messages are written: [Ordered], [KeyConcurrency],
// [Fair], [KeyRateLimit], [Prioritized] and [Forwards].
func Declare[T Payload](name string, options ...ConsumerOption) Consumer {
	c := consumerOf[T](name)
	c.declared = true
	c.set(false, options)
	return c
}
