package broker

import (
	"context"
	"errors"
	"fmt"
)

// Record is a message as a broker carries it.
type Record struct {
	// Destination is the broker's address for the record: a subject, a topic, or a routing key.
	Destination string
	// Key orders records: on brokers with partitions, records with the same key keep their order.
	// Empty if order does not matter.
	Key string
	// ID is unique across all sources, and stays the same when the record is published again.
	// Brokers deduplicate by it.
	ID string
	// ContentType is the media type of Body.
	ContentType string
	// Attributes are those of CloudEvents 1.0 in binary mode, by their names without a prefix.
	// Adapters add and remove the prefix of their protocol. Nil for any other record.
	Attributes map[string]string
	// Headers are sent in addition to the attributes.
	Headers map[string]string
	// Body is the payload. It is nil for a tombstone: a record whose subject is deleted.
	Body []byte
}

// Errors of a [Publisher], by which a forwarder decides the outcome of a message. Use errors.Is.
// Any other error is a failed attempt.
var (
	// ErrUnavailable is returned when the broker did not answer in time. The record may have
	// arrived. The forwarder publishes it again later and counts no attempt.
	ErrUnavailable = errors.New("broker: the broker is not available")
	// ErrDisconnected is returned when there is no connection to the broker, so no destination can
	// be reached. It wraps [ErrUnavailable], which a publisher returns if it cannot distinguish the
	// two.
	ErrDisconnected = fmt.Errorf("%w: no connection", ErrUnavailable)
	// ErrNoDestination is returned when the destination does not exist. The record is published
	// again later, and no attempt is counted.
	ErrNoDestination = errors.New("broker: the destination does not exist")
	// ErrRejected is returned when the broker will never accept the record, since it is too large
	// for instance. The message is poisoned at once.
	ErrRejected = errors.New("broker: the broker refuses the record")
	// ErrSequenceConflict is returned by an [Appender] when the newest record of the shard is not
	// the expected one. Nothing was appended.
	ErrSequenceConflict = errors.New("broker: another publisher has appended to the shard")
)

// Publisher publishes records to a broker. It is safe for concurrent use.
type Publisher interface {
	// Publish returns when the outcome of each record is known, or ctx has ended. A returned slice
	// has one entry per record: errs[i] is nil if the broker has stored records[i] durably. An
	// empty slice means that all are stored. A slice of any other length counts as a failed attempt
	// of every record. Publish neither keeps nor changes the records.
	Publish(ctx context.Context, records []Record) (errs []error)
}

// ReconnectNotifier is implemented by a [Publisher] that detects when its broker is back. With it,
// the circuit of a forwarder closes at once; without it, the circuit closes after a successful
// probe.
type ReconnectNotifier interface {
	// OnReconnect registers f, which is called each time that the broker answers again after an
	// outage. f returns at once.
	OnReconnect(f func())
}

// OrderedPublisher is implemented by a [Publisher] that keeps order even when a record fails.
// relay.NewLogForwarder publishes with it, unless the publisher is an [Appender]. With
// [Publisher.Publish] alone, later records of a batch may arrive although an earlier one failed.
type OrderedPublisher interface {
	// PublishInOrder sends each record after the broker has stored the previous one durably. It
	// returns n, the number of stored records, and the error of the next record, after which nothing
	// was sent. If time runs out after at least one record is stored, err is nil and n is less than
	// len(records).
	PublishInOrder(ctx context.Context, records []Record) (n int, err error)
}

// Appender is implemented by a [Publisher] whose broker appends conditionally: only if the newest
// record is the one that the caller expects. With it, relay.NewLogForwarder publishes in order and
// without duplicates, even if a process is killed or continues after its lease. No other program
// may write to a shard. An Appender is safe for concurrent use.
type Appender interface {
	// Last returns the newest record of a shard: its ID, its position, which is its sequence
	// attribute, and its revision, the broker's sequence number for it. Without records in the shard,
	// id is empty, position is 0, and revision is the greatest one that the broker has removed, or 0
	// if it has removed none.
	Last(ctx context.Context, shard int) (id string, position int64, revision uint64, err error)
	// Append writes all records in order, or none. It requires that the revision of the newest record
	// equals after; 0 requires an empty shard. Otherwise it returns [ErrSequenceConflict]. On success
	// it returns the revision of the last record that it wrote. After any other error except
	// [ErrRejected], the records may have been written.
	Append(ctx context.Context, shard int, after uint64, records []Record) (revision uint64, err error)
}

// OutageNotifier is implemented by a [Subscriber] that detects whether its broker answers. With it,
// a receiver reports outages: in the log, when one begins and ends, in inbox.Stats and in the
// health of inbox.Runner.
type OutageNotifier interface {
	// OnOutage registers f, which is called while Subscribe runs: with an error whenever the broker
	// does not answer, and with nil when it does. f returns at once, and may be called often.
	OnOutage(f func(err error))
}

// Subscriber receives the records of a broker. Subscribe is called by one goroutine at a time.
type Subscriber interface {
	// Subscribe calls fn with received records until ctx ends, and waits for it to return. Batches
	// of one partition, or of a subscription without partitions, are sequential. fn may run
	// concurrently for different partitions. A nil error of fn acknowledges the whole batch. Any
	// other error returns all of it to the broker, to be delivered again. fn owns the records.
	//
	// Subscribe reconnects by itself during an outage. It returns nil within 10 s after ctx has
	// ended. It returns an error when it cannot continue, for instance because the subscription
	// does not exist.
	Subscribe(ctx context.Context, fn func(ctx context.Context, records []Record) error) error
}
