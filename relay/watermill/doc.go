// Package watermill carries records over whatever Watermill has a publisher or a subscriber for, for
// package relay. It is a module of its own, so that the library itself depends on no broker. Its
// name is that of Watermill's own package: import it as amwatermill.
//
//	publisher, err := amwatermill.NewPublisher(pub, amwatermill.PublisherConfig{})
//	subscriber, err := amwatermill.NewSubscriber(sub, amwatermill.SubscriberConfig{Topic: "orders"})
//
// It is slow: Watermill says neither which message of several has failed nor, as others do, brings
// the next before the last is acknowledged, so records go and come one at a time. Where there is an
// adapter for the broker itself, use that. It closes neither publisher nor subscriber. Take a
// publisher that waits for its broker: Watermill lets them return earlier, and then nothing is
// promised. How large a record may be, what headers may say, and whether it comes back after a
// crash, is up to Watermill's package for the broker.
//
// The topic is Destination, the UUID is ID. Attributes are metadata with the prefix "ce-"; what
// Watermill has no place for is in metadata that begins with "asyncmonolith-". It may import only relay, relay/internal/adapter and watermill.
package watermill
