package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/server"
)

// Inbox measures how many records a second are taken over from a stream and acknowledged: all
// new, and then all of them delivered once more. Nothing is consumed meanwhile.
func (b *Bench) Inbox(ctx context.Context, from *broker.JetStream, messages int) (fresh, duplicates Relayed, err error) {
	err = b.placed(ctx, from, func(r *run, place broker.Place) error {
		events := make([]*nats.Msg, messages)
		for i := range events {
			if events[i], err = event(i); err != nil {
				return err
			}
		}
		if err := from.Fill(r.ctx, place.Address, messages, func(i int) *nats.Msg { return events[i] }); err != nil {
			return err
		}
		if fresh, err = r.receive(from, place.Address, "once", messages); err != nil {
			return err
		}
		if err := server.Analyze(r.ctx, r.dsn); err != nil {
			return err
		}
		duplicates, err = r.receive(from, place.Address, "again", messages)
		return err
	})
	return fresh, duplicates, err
}

// receive measures a subscription of everything in a stream.
func (r *run) receive(from *broker.JetStream, at broker.Address, name string, messages int) (found Relayed, err error) {
	if at, err = from.Subscription(r.ctx, at, name); err != nil {
		return found, err
	}
	receiver := contender.Ours("inbox", contender.Variant{Receive: true, Inbox: true})
	wire := new(contender.Wire)
	err = r.with(receiver, contender.Work{Place: at, Wire: wire}, func(system contender.System) error {
		cost, start := r.meter(wire), time.Now()
		stop, err := system.Start(r.ctx)
		if err != nil {
			return err
		}
		err = r.until("records acknowledged", messages, func() (int, error) {
			waiting, err := from.Waiting(r.ctx, at)
			return messages - waiting, err
		})
		found = Relayed{Rate: float64(messages) / time.Since(start).Seconds(), Cost: cost()}
		return errors.Join(err, stop())
	})
	if err != nil {
		return found, err
	}
	for _, table := range []string{"consumer_messages", "inbox_messages"} {
		switch rows, err := server.Count(r.ctx, r.dsn, table); {
		case err != nil:
			return found, err
		case rows != messages:
			return found, fmt.Errorf("%d rows in %s, want %d", rows, table, messages)
		}
	}
	return found, nil
}
