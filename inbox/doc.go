// Package inbox receives the records of a broker, each once, and turns them into messages of the
// registered consumers or into events of the event log.
//
// [NewReceiver] makes a receiver of a subscription, which a [Runner] runs. A record is accepted
// once within the deduplication window, however often it is delivered: an inbox table stores its
// hash in the transaction that writes its messages. So an effect happens exactly once if its
// consumer is transactional (see outbox.ConsumeTx), and otherwise as often as its consumer runs.
//
// Messages of a receiver are not ordered. To keep the order of another service's event log, publish
// it with relay.NewLogForwarder and append it to this service's log with [AppendToLog].
//
// Records are CloudEvents 1.0 events. [MapRecord] reads other formats. Package broker defines the
// interface to brokers; the packages below it are adapters.
package inbox
