package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"

	amqp "github.com/rabbitmq/amqp091-go"
)

// inFlight is how many records of a batch wait for their confirmations at once.
const inFlight = 256

// settling is how long after its beginning a connection says nothing about a destination by rejecting records. Where a
// node dies, publishers connect to another at once, and until a quorum queue has another leader it rejects all that comes by a
// channel that is new. A queue that is full says the same: it is known by its doing so for longer.
const settling = 5 * time.Second

// lane is a channel of AMQP that confirms.
type lane struct {
	link    *link
	channel *amqp.Channel
	returns chan amqp.Return
	ended   chan *amqp.Error
	reason  *amqp.Error // why it has ended, once that was asked
	left    bool        // records were left on their way: it must not be used any more
	// rejected: a queue has rejected records. One that has lost its leader may do so on this channel for
	// ever, also when it has another.
	rejected bool
}

func openLane(l *link) (*lane, error) {
	channel, err := l.conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	if err := channel.Confirm(false); err != nil {
		return nil, fmt.Errorf("turn on publisher confirms: %w", err)
	}
	return &lane{
		link:    l,
		channel: channel,
		returns: channel.NotifyReturn(make(chan amqp.Return, inFlight)), // all may come back before one is read
		ended:   channel.NotifyClose(make(chan *amqp.Error, 1)),         // one: the client does not wait for us
	}, nil
}

// publish publishes records in parts, and says what became of each.
func (l *lane) publish(ctx context.Context, exchange string, records []broker.Record) (errs []error) {
	for part := range slices.Chunk(records, inFlight) {
		errs = append(errs, l.part(ctx, exchange, part)...)
	}
	return errs
}

func (l *lane) part(ctx context.Context, exchange string, records []broker.Record) []error {
	errs := make([]error, len(records))
	confirms := make([]*amqp.DeferredConfirmation, len(records))
	for i, record := range records {
		m, err := message(record, l.link.conn.Config.FrameSize)
		if err != nil {
			errs[i] = fmt.Errorf("%w: %w", err, broker.ErrRejected)
			continue
		}
		if confirms[i], errs[i] = l.channel.PublishWithDeferredConfirm(exchange, record.Destination, true, false, m); errs[i] != nil {
			errs[i] = unavailable(errs[i])
		}
	}
	blocked, _ := l.link.block()
	for _, confirm := range confirms {
		if confirm == nil {
			continue
		}
		select {
		case <-confirm.Done():
		case <-blocked:
			l.left = true
		case <-ctx.Done():
		}
	}
	returned := l.returned()       // the broker returns a record before it confirms it
	lost := make(map[string]error) // what became of those that were not confirmed, by destination
	for i, confirm := range confirms {
		switch {
		case confirm != nil && confirm.Acked() && !returned[[2]string{records[i].Destination, shortID(records[i])}]:
		case confirm != nil && confirm.Acked():
			errs[i] = fmt.Errorf("no queue is bound for the record: %w", broker.ErrNoDestination)
		case confirm != nil || errors.Is(errs[i], broker.ErrUnavailable) && l.channel.IsClosed():
			// One that could not be sent, on a channel that is not closed yet, is not rejected: its connection ends.
			to := records[i].Destination
			if lost[to] == nil {
				lost[to] = l.lost(ctx, exchange, to)
			}
			errs[i] = lost[to]
		}
	}
	return errs
}

// returned reads what came back: routing keys and message ids.
func (l *lane) returned() map[[2]string]bool {
	all := make(map[[2]string]bool)
	for {
		select {
		case r, ok := <-l.returns:
			if !ok {
				return all
			}
			all[[2]string{r.RoutingKey, r.MessageId}] = true
		default:
			return all
		}
	}
}

func shortID(record broker.Record) string {
	if len(record.ID) > maxShort {
		return ""
	}
	return record.ID
}

// blameError is of records that were not confirmed when the broker has closed the channel because of one of them.
type blameError struct {
	reason *amqp.Error
	class  error // what it is for the one to blame
}

// Error implements error.
func (e *blameError) Error() string { return e.reason.Error() + ": " + e.class.Error() }

// Unwrap returns the broker's error, and the class.
func (e *blameError) Unwrap() []error { return []error{e.reason, e.class} }

// lost says what became of records that were not confirmed, those of a destination.
func (l *lane) lost(ctx context.Context, exchange, destination string) error {
	if ctx.Err() != nil {
		return unavailable(context.Cause(ctx))
	}
	if l.left {
		return unavailable(errors.New("the broker blocks publishers"))
	}
	if !l.channel.IsClosed() {
		return l.rejection(exchange, destination)
	}
	select {
	case reason, ok := <-l.ended:
		if ok {
			l.reason = reason
		}
	case <-ctx.Done():
	}
	switch reason := l.reason; {
	case reason == nil:
		return unavailable(amqp.ErrClosed)
	case reason.Code == amqp.AccessRefused && strings.Contains(reason.Reason, "access to topic"):
		return &blameError{reason, broker.ErrNoDestination}
	case reason.Code == amqp.NotFound, reason.Code == amqp.AccessRefused: // the exchange, which is that of all
		return fmt.Errorf("%w: %w", reason, broker.ErrNoDestination)
	case reason.Code == amqp.PreconditionFailed, reason.Code == amqp.ContentTooLarge:
		return &blameError{reason, broker.ErrRejected}
	default:
		return unavailable(reason)
	}
}

// rejection says what it means that a queue rejects records. One without leader shows no messages,
// and one that is full has some; but only of the default exchange it is known which queue that is.
func (l *lane) rejection(exchange, destination string) error {
	l.rejected = true
	if time.Since(l.link.began) < settling {
		return unavailable(errors.New("a queue rejected the record, and may have no leader yet"))
	}
	if exchange == "" {
		channel, err := l.link.conn.Channel() // another: an error closes it
		if err != nil {
			return unavailable(err)
		}
		defer func() { _ = channel.Close() }() // or it is closed already
		if queue, err := channel.QueueDeclarePassive(destination, false, false, false, false, nil); err == nil && queue.Messages == 0 {
			return unavailable(errors.New("the queue rejected the record but has no messages, so it has no leader"))
		}
	}
	return fmt.Errorf("a queue rejected the record: %w", broker.ErrNoDestination)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", err, broker.ErrUnavailable) }
