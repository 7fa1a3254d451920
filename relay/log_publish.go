package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

// put publishes a batch. It returns how many records were published before the first failure, and
// the revision of the last one.
func (s *shard) put(ctx context.Context, b outgoingBatch) (n int, revision int64, err error) {
	type published struct {
		n        int
		revision int64
		err      error // of the publisher
	}
	var asked published
	what, timeout := "relay: RunnerConfig.Telemetry", s.config.PublishTimeout+isolate.AskGrace
	asked, err = isolate.Ask(ctx, what, &s.abandoned, timeout, func(ctx context.Context) (p published, err error) {
		p.revision = b.revision
		err = access.RunProduce(ctx, s.produce, b.messages, func(ctx context.Context, _ []*bus.Message) error {
			if p.err = ctx.Err(); p.err != nil { // it was abandoned
				return p.err
			}
			if s.appender != nil {
				p.n, p.revision, p.err = s.appendAll(ctx, b)
			} else {
				p.n, p.err = s.publishAll(ctx, b.records)
			}
			return p.err
		})
		if err == nil && p.n == 0 {
			err = errors.New("relay: RunnerConfig.Telemetry has not passed a batch on")
		}
		return p, err
	})
	if err != nil && asked.err == nil && !errors.Is(err, isolate.ErrTimeout) { // the layer's own error
		err = eventError{err}
	}
	return asked.n, max(asked.revision, b.revision), err
}

// publisherCall names a shard's calls in errors.
const publisherCall = "relay: the publisher"

// lastRecord is the broker's last record of a shard.
type lastRecord struct {
	position int64
	revision uint64
}

// last asks the broker for its last record. The position of a record with another forwarder's name must not
// count: its shard may have other streams, and the events between would be lost.
func (s *shard) last(ctx context.Context, timeout time.Duration) (lastRecord, error) {
	return isolate.Ask(ctx, publisherCall, &s.abandoned, timeout, func(ctx context.Context) (last lastRecord, err error) {
		id, position, revision, err := s.appender.Last(ctx, s.number)
		if err == nil && position > 0 && !s.wrote(id) {
			err = bus.Permanent(fmt.Errorf(
				"record %q at position %d is not of this forwarder: a forwarder with a new name needs an Appender with a new place, "+
					"such as a new nats.AppenderConfig.Prefix, and publishes the whole log there",
				id, position,
			))
		}
		return lastRecord{position, revision}, err
	})
}

func (s *shard) appendAll(ctx context.Context, b outgoingBatch) (n int, revision int64, err error) {
	before, records := b.revision, b.records
	newest, err := isolate.Ask(ctx, publisherCall, &s.abandoned, s.config.PublishTimeout, func(ctx context.Context) (uint64, error) {
		return s.appender.Append(ctx, s.number, uint64(before), records)
	})
	if err == nil && (newest == 0 || newest > math.MaxInt64) {
		err = fmt.Errorf("relay: append: the revision is %d: 1 to %d is allowed", newest, int64(math.MaxInt64))
	}
	if err != nil {
		return 0, before, err
	}
	return len(records), int64(newest), nil
}

func (s *shard) publishAll(ctx context.Context, records []broker.Record) (n int, err error) {
	if s.sequence != nil {
		n, err = isolate.Ask(
			ctx, publisherCall, &s.abandoned, s.config.PublishTimeout,
			func(ctx context.Context) (int, error) { return s.sequence.PublishInOrder(ctx, records) },
		)
		if n < 0 || n > len(records) || n == 0 && err == nil || n == len(records) && err != nil {
			return 0, fmt.Errorf(
				"relay: publish: %d of %d records, and error %v: 1 to all records without an error, or fewer than all with an error, are allowed",
				n, len(records), err,
			)
		}
		return n, err
	}
	results, err := isolate.Ask(ctx, publisherCall, &s.abandoned, s.config.PublishTimeout, func(ctx context.Context) ([]error, error) {
		return s.pub.Publish(ctx, records), nil
	})
	if err != nil {
		return 0, err
	}
	if len(results) != 0 && len(results) != len(records) {
		return 0, fmt.Errorf("relay: publish: %d results for %d records: one for each is allowed, or none", len(results), len(records))
	}
	for i, err := range results {
		if err != nil {
			return i, errorlog.Sound(err)
		}
	}
	return len(records), nil
}
