// Package kafka carries records over Kafka, for package relay. It is a module of its own, so that the
// library itself depends on no broker.
//
//	publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: brokers})
//	defer publisher.Close()
//	subscriber, err := kafka.NewSubscriber(kafka.SubscriberConfig{Brokers: brokers, Group: "shipping", Topics: []string{"orders"}})
//
// It makes no topics. A record counts as arrived when all replicas in sync have it: that is as
// durable as the topic's min.insync.replicas. Kafka drops no duplicates of what is published again:
// the receiver does.
//
// A record's key is Key, its value is Body, and a nil Body is a tombstone. Attributes are headers
// with the prefix "ce_", as CloudEvents has it; the content type is the header content-type. What
// Kafka has no place for is in headers that begin with "asyncmonolith-". It is tested with a fake
// of Kafka that speaks its protocol and replicates nothing.
package kafka
