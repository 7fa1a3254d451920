package broker

import (
	"context"
	"errors"
	"fmt"
)

// Record is a message as a broker carries it.
type Record struct {
	// Destination is where it goes, or came from, in the broker's terms: a subject, a topic, a
	// routing key.
	Destination string
	// Key has records with the same one keep their order, on brokers that have partitions. Empty
	// if it does not matter.
	Key string
	// ID is the same whenever the record is published again, and no other record has it, of whichever source.
	// Brokers that drop what they have had already go by it.
	ID string
	// ContentType is the media type of Body.
	ContentType string
	// Attributes are those of CloudEvents 1.0 in binary mode, by their names without a prefix:
	// adapters add the prefix of their protocol, and take it away. Nil for any other record.
	Attributes map[string]string
	// Headers travel beside the attributes.
	Headers map[string]string
	// Body is nil for a record that says that its subject is gone.
	Body []byte
}

// Errors of a [Publisher], by which a relay decides what becomes of a message. Use errors.Is.
// Any other error is an attempt that has failed.
var (
	// ErrUnavailable: the broker did not answer, or not in time. The record may have arrived. It
	// is published again once the broker is back, and no attempt is counted.
	ErrUnavailable = errors.New("broker: the broker is not available")
	// ErrDisconnected: there is no connection to the broker, and so no destination can be reached. It is
	// [ErrUnavailable], too: a publisher that cannot tell the two apart returns that.
	ErrDisconnected = fmt.Errorf("%w: no connection", ErrUnavailable)
	// ErrNoDestination: the broker has nowhere to put the record. It is published again later,
	// and no attempt is counted.
	ErrNoDestination = errors.New("broker: the destination does not exist")
	// ErrRejected: the broker will never take the record as it is, which is too large for
	// instance. Its message is poisoned at once.
	ErrRejected = errors.New("broker: the broker refuses the record")
	// ErrSequenceConflict is for an [Appender]: the newest record of the shard is another than the one
	// after which was to be appended, and nothing was.
	ErrSequenceConflict = errors.New("broker: another publisher else has appended to the shard")
)

// Publisher hands records to a broker. It is safe for concurrent use.
type Publisher interface {
	// Publish returns when the fate of each record is known, or ctx has ended. errs[i] is
	// about records[i]: nil if the broker has it durably. A nil slice means that it has all. Records are
	// not kept, or changed.
	Publish(ctx context.Context, records []Record) (errs []error)
}

// ReconnectNotifier is a [Publisher] that notices by itself when its broker is back. With one the [WithCircuit] of a
// relay opens at once, and with any other when a probe is done.
type ReconnectNotifier interface {
	// OnReconnect has f called each time that the broker answers again after it did not. f returns
	// at once.
	OnReconnect(f func())
}

// OrderedPublisher is a [Publisher] that has no record overtake another one, whatever becomes of that. A [NewLogForwarder] publishes by
// it, unless it is an [Appender]: behind a record that [Publisher.Publish] fails for others of its batch may be there.
type OrderedPublisher interface {
	// PublishInOrder publishes records one after the other: each once the broker has the one before durably. It
	// returns how many it has, which are the first, and why not the next one, behind which nothing was sent. Without
	// an error the time was too short for the rest.
	PublishInOrder(ctx context.Context, records []Record) (n int, err error)
}

// Appender is a [Publisher] whose broker appends on a condition: only after the record that the
// caller takes for the newest. With one [NewLogForwarder] publishes nothing twice, and in order,
// even if a process is killed or goes on after its lease. A shard is a place of its own, where no
// other program puts records. It is safe for concurrent use.
type Appender interface {
	// Last returns the newest record of a shard: the number in its attribute sequence, and the mark
	// by which the broker knows it. If there is none the position is 0, and the mark the greatest
	// of what the broker has removed since it was old: 0 if that is nothing, as in a place that is
	// made anew.
	Last(ctx context.Context, shard int) (position int64, mark uint64, err error)
	// Append puts all of the records, in their order, or none, after the record with a mark,
	// 0 if there is none, and returns the mark of the newest. If another one is the newest, the
	// error is [ErrSequenceConflict]. After any other that is not [ErrRejected] they may be there.
	Append(ctx context.Context, shard int, after uint64, records []Record) (mark uint64, err error)
}

// OutageNotifier is a [Subscriber] that finds out whether its broker answers. With one a receiver says so: in
// the log, when an outage begins and ends, in [Stats] and in [Runner.Health].
type OutageNotifier interface {
	// OnOutage has f called while Subscribe runs: with an error each time that the broker does not
	// answer, and with nil when it does. f returns at once, and may be called often.
	OnOutage(f func(err error))
}

// Subscriber brings the records of a broker.
type Subscriber interface {
	// Subscribe calls fn with what has come, until ctx ends, and waits for it to return. Batches
	// of one partition, or of a subscription that has none, follow one another. A nil error of
	// fn acknowledges the whole batch; any other gives all of it back, to be delivered again.
	// What fn is given is its own.
	//
	// While the broker is away Subscribe reconnects by itself. It returns nil once ctx has
	// ended, within 10 s, and an error when it cannot go on: a subscription that does not exist, for instance.
	Subscribe(ctx context.Context, fn func(ctx context.Context, records []Record) error) error
}
