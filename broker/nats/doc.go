// Package nats carries records over NATS JetStream, for package relay. It is a module of its own, so
// that the library itself depends on no broker. Its name is that of NATS's own client: import it as
// amnats.
//
//	nc, err := nats.Connect(url, amnats.Options()...)
//	publisher, err := amnats.NewPublisher(nc, amnats.PublisherConfig{})
//	subscriber, err := amnats.NewSubscriber(nc, amnats.SubscriberConfig{Stream: "ORDERS", Consumer: "shipping"})
//
// It makes no streams and no consumers, and closes no connection: those are the application's. A
// stream must acknowledge what it is sent; [Publisher.Check] reports whether it does. How durable a
// record is after that is up to the stream's replicas and the servers' sync_interval.
//
// A record is a message whose attributes are headers with the prefix "ce-", percent-encoded as
// CloudEvents does for HTTP, and whose ID is Nats-Msg-Id: JetStream drops what it has had within
// its window of duplicates. Headers that NATS could not carry as they are travel percent-encoded,
// under names that begin with "asyncmonolith-".
package nats
