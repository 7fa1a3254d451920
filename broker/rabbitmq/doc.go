// Package rabbitmq publishes records to RabbitMQ and subscribes to them, for packages relay and
// inbox. It is a module of its own, so that the library depends on no broker.
//
// It creates no exchanges and no queues. Messages are persistent, mandatory and confirmed: a
// publish succeeds once every queue that the record is routed to has it. Use quorum queues, and
// give them no delivery limit, or a dead-letter exchange: since RabbitMQ 4.0 the broker drops a
// message that was requeued 20 times, unless another limit is set.
//
// The routing key is Destination, message-id is ID, content-type is ContentType. Attributes are
// headers with the prefix "cloudEvents_"; "cloudEvents:" is read, too. Headers that RabbitMQ
// reserves, and fields that it does not have, are headers that begin with "asyncmonolith-".
package rabbitmq
