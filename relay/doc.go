// Package relay carries messages between services over a broker: from one database into another,
// without losing effects or repeating them. Package broker defines the interface to brokers; the
// packages below it are adapters.
//
// [NewForwarder] makes a consumer that publishes messages. Register it like any other; messages
// that it cannot publish yet stay in the outbox. [Receive] describes a subscription, which a
// [Runner] runs. Received records become messages of the registered consumers. Each record is
// accepted once, however often it is delivered: an inbox table stores it in the transaction that
// writes its messages. So an effect happens exactly once if its consumer is transactional (see
// outbox.ConsumeTx), and otherwise as often as its consumer runs.
//
// Forwarded messages are not ordered. To keep the order of the event log, [NewLogForwarder]
// publishes it and [AppendToLog] appends received events to the receiving service's log.
//
// Records are CloudEvents 1.0 events.
package relay
