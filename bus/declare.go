package bus

import "github.com/asyncmonolith/asyncmonolith-go/internal/limits"

// Declare names a consumer that another program runs, so that this one writes its messages:
// to be registered beside those that [Consume] makes. To declare one that is registered here
// changes nothing, so programs may share a list. A consumer of several payload types is
// declared once for each.
//
// A processor warns when it gets messages whose producer does not know one of its consumers.
func Declare[T Payload](name string) Consumer {
	c := consumerOf[T](name)
	c.declared = true
	if err := limits.CheckName(name); err != nil {
		c.mistake("name %q %w", name, err)
	}
	return c
}
