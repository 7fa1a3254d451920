package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
)

const (
	// RelaySize is about the size of a relayed payload in bytes.
	RelaySize = 120
	// lookEvery is how often a measurement asks a broker how far it is.
	lookEvery = 10 * time.Millisecond
)

// Broker has places for records.
type Broker interface {
	// Place makes one that is empty.
	Place(ctx context.Context) (broker.Place, error)
	// CPU returns the processor time that the broker has used, 0 when that is not known.
	CPU() time.Duration
}

// Relayed is what was found of records that go to a broker, or come from it.
type Relayed struct {
	// Rate is in messages a second, until all are with the other side, and known to be there.
	Rate float64
	// Cost is that of the relaying.
	Cost Cost
}

// Relay measures how fast a contender takes a backlog to a broker. It fails unless each message
// is there exactly once, and nothing remains.
func (b *Bench) Relay(ctx context.Context, c contender.Contender, to Broker, messages int) (found Relayed, err error) {
	err = b.placed(ctx, to, func(r *run, place broker.Place) error {
		t := newTally(messages, 1)
		work := contender.Work{Handle: func(contender.Signup) {}, Wire: new(contender.Wire), Place: place.Address}
		return r.with(c, work, func(system contender.System) error {
			d := Drain{Messages: messages, Size: RelaySize}
			if _, err := r.produce(system, d); err != nil {
				return err
			}
			if _, err := r.prepare(d); err != nil {
				return err
			}
			cost, start := r.meter(work.Wire), time.Now()
			stop, err := system.Start(r.ctx)
			if err != nil {
				return fmt.Errorf("start: %w", err)
			}
			err = r.until("records there", messages, func() (int, error) { return place.Count(r.ctx) })
			if err == nil {
				err = r.settled(system)
			}
			found = Relayed{Rate: float64(messages) / time.Since(start).Seconds(), Cost: cost()}
			if err := errors.Join(err, stop()); err != nil {
				return err
			}
			return errors.Join(r.checkPlace(place, t), system.Verify(r.ctx))
		})
	})
	return found, err
}

// Publish measures a client that has nothing to do but publish, asynchronously, what it has in
// memory: the limit of the broker.
func (b *Bench) Publish(ctx context.Context, to *broker.JetStream, messages int) (rate float64, err error) {
	err = b.placed(ctx, to, func(r *run, place broker.Place) error {
		filled, start := make([]*nats.Msg, messages), time.Time{}
		for i := range filled {
			if filled[i], err = event(i); err != nil {
				return err
			}
		}
		start = time.Now()
		if err := to.Fill(r.ctx, place.Address, messages, func(i int) *nats.Msg { return filled[i] }); err != nil {
			return err
		}
		rate = float64(messages) / time.Since(start).Seconds()
		return r.checkPlace(place, newTally(messages, 1))
	})
	return rate, err
}

// placed runs a measurement in a database of its own, and a place of its own.
func (b *Bench) placed(ctx context.Context, to Broker, measure func(r *run, place broker.Place) error) error {
	return b.fresh(ctx, func(r *run) (err error) {
		r.broker = to
		place, err := to.Place(r.ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, place.Drop(context.WithoutCancel(r.ctx))) }()
		return measure(r, place)
	})
}

// until waits for a number to be reached.
func (r *run) until(what string, want int, look func() (int, error)) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		n, err := look()
		if err != nil || n >= want {
			return err
		}
		select {
		case <-r.ctx.Done():
			return fmt.Errorf("%d of %d %s: %w", n, want, what, context.Cause(r.ctx))
		case <-ticker.C:
		}
	}
}

// checkPlace fails unless each message is in the place exactly once.
func (r *run) checkPlace(place broker.Place, t *tally) error {
	err := place.Read(r.ctx, func(record broker.Record) error {
		var payload contender.Signup
		if err := json.Unmarshal(record.Body, &payload); err != nil {
			return fmt.Errorf("decode a record: %w", err)
		}
		t.handle(payload)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read what was published: %w", err)
	}
	return t.check()
}

// event is a message as relays publish it.
func event(i int) (*nats.Msg, error) {
	body, err := json.Marshal(contender.Signups(i, 1, RelaySize)[0])
	id := fmt.Sprintf("00000000-0000-7000-8000-%012d", i)
	return &nats.Msg{Data: body, Header: nats.Header{
		nats.MsgIdHdr: {id}, "ce-specversion": {"1.0"}, "ce-id": {id}, "ce-source": {"/bench"},
		"ce-type": {
			contender.Signup{}.PayloadType(),
		}, "ce-time": {time.Now().UTC().Format(time.RFC3339Nano)}, "content-type": {"application/json"},
	}}, err
}
