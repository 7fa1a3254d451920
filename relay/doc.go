// Package relay carries messages between services over a broker: out of one database, and into
// another, without losing or doubling an effect. Package broker is its contract with brokers,
// and the packages below that are adapters.
//
// [NewForwarder] makes a consumer that publishes messages. It is registered like any other, and
// messages that it cannot publish yet wait where they are. [Receive] describes a subscription,
// which a [Runner] runs: what arrives becomes messages of the consumers that are registered here.
// Each record is taken over once, however often it is delivered: an inbox, a table, remembers it
// in the transaction that writes its messages. So an effect happens exactly once if its
// consumer is transactional, see outbox.ConsumeTx, and as often as its consumer runs otherwise.
//
// Their order is not kept. That of the event log is: [NewLogForwarder] publishes it, and [AppendToLog] has a
// receiver append what arrives to the log of its service.
//
// Records are events of CloudEvents 1.0.
package relay
