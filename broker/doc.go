// Package broker lets relays and receivers work with any message broker. It defines the [Record],
// the interfaces [Publisher] and [Subscriber], and the errors that decide the outcome of a message.
// Packages relay and inbox, and the adapters in the subdirectories, use it. To write an adapter,
// implement these interfaces and run the tests of package brokertest, which every adapter passes.
package broker
