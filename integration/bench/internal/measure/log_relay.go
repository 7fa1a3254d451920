package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	amnats "github.com/asyncmonolith/asyncmonolith-go/broker/nats"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// LogForwarder measures how many events of a backlog a second leave the log for a stream, until the
// checkpoints are at its end. It fails unless each event is in the stream exactly once, in order.
func (b *Bench) LogRelay(ctx context.Context, to *broker.JetStream, events, shards int) (found Relayed, err error) {
	place, err := to.Place(ctx)
	if err != nil {
		return found, err
	}
	err = b.withLedger(ctx, func(ctx context.Context, l *ledger) error {
		if err := l.backlog(ctx, events); err != nil {
			return err
		}
		if _, err := l.log.AssignPositions(ctx, l.db); err != nil {
			return err
		}
		if _, err := l.db.ExecContext(ctx, "ANALYZE"); err != nil {
			return err
		}
		runner, end, err := l.relay(place.Address, shards)
		if err != nil {
			return err
		}
		defer end()
		r := &run{ctx: ctx, server: b.Server, broker: to}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		cost, start := r.meter(new(contender.Wire)), time.Now()
		go func() { ended <- runner.Run(running) }()
		err = r.until("events relayed", events, func() (int, error) {
			n, err := place.Count(ctx)
			if err != nil || n < events {
				return n, err
			}
			stats, err := runner.Stats(ctx)
			if err != nil {
				return 0, err
			}
			return events - int(stats[0].Lag), nil
		})
		found = Relayed{Rate: float64(events) / time.Since(start).Seconds(), Cost: cost()}
		stop()
		if err := errors.Join(err, <-ended); err != nil {
			return err
		}
		return checkOrder(ctx, place, events)
	})
	return found, errors.Join(err, place.Drop(context.WithoutCancel(ctx)))
}

// relay makes a runner of a log forwarder.
func (l *ledger) relay(at broker.Address, shards int) (_ *relay.Runner, end func(), err error) {
	nc, err := nats.Connect(strings.Join(at.URLs, ","), amnats.Options()...)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to NATS: %w", err)
	}
	appender, err := amnats.NewAppender(nc, amnats.AppenderConfig{Stream: at.Name, Prefix: at.Name + ".log"})
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	out := relay.NewLogForwarder(
		"bench", appender, relay.LogConfig{Source: "/bench", Shards: shards, Routes: []relay.Route{relay.To[booked]("")}},
	)
	runner, err := relay.NewRunner(l.db, l.registry, relay.RunnerConfig{Log: l.log, Logger: slog.New(slog.DiscardHandler)}, out)
	if err != nil {
		nc.Close()
	}
	return runner, nc.Close, err
}

// checkOrder fails unless the stream has each event once, and those of each shard ascend.
func checkOrder(ctx context.Context, place broker.Place, events int) error {
	o := order{newest: make(map[string]int), seen: make([]bool, events)}
	if err := place.Read(ctx, o.see); err != nil {
		return err
	}
	return o.check()
}

// order is what is known of the positions in a stream.
type order struct {
	newest map[string]int // by subject, of which each shard has one
	seen   []bool         // position 1 first
	n      int
}

func (o *order) see(record broker.Record) error {
	position, err := strconv.Atoi(nats.Header(record.Headers).Get("ce-sequence"))
	switch newest := o.newest[record.Subject]; {
	case err != nil:
		return fmt.Errorf("a record's sequence: %w", err)
	case position < 1 || position > len(o.seen) || o.seen[position-1]:
		return fmt.Errorf("event %d is there twice, or was never appended", position)
	case position <= newest:
		return fmt.Errorf("event %d is behind %d of its shard", position, newest)
	}
	o.newest[record.Subject], o.seen[position-1] = position, true
	o.n++
	return nil
}

func (o *order) check() error {
	if o.n != len(o.seen) {
		return fmt.Errorf("%d events are in the stream, want %d", o.n, len(o.seen))
	}
	return nil
}
