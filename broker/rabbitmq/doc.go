// Package rabbitmq carries records over RabbitMQ, for package relay. It is a module of its own, so
// that the library itself depends on no broker.
//
//	publisher, err := rabbitmq.NewPublisher(rabbitmq.PublisherConfig{URLs: urls, Exchange: "orders"})
//	defer publisher.Close()
//	subscriber, err := rabbitmq.NewSubscriber(rabbitmq.SubscriberConfig{URLs: urls, Queue: "shipping"})
//
// It makes no exchanges and no queues. Messages are persistent, mandatory and confirmed: a record
// counts as arrived when every queue that it goes to has it, which is as durable as the queue is. Use
// quorum queues, and give them no limit of deliveries, or a dead-letter exchange: beyond that limit,
// which is 20 unless it is set since RabbitMQ 4.0, the broker drops what was given back.
//
// The routing key is Destination, message-id is ID, content-type is ContentType. Attributes are
// headers with the prefix "cloudEvents_"; "cloudEvents:" is read, too. Headers that RabbitMQ would
// take for its own, and what it has no place for, are in headers that begin with
// "asyncmonolith-".
package rabbitmq
