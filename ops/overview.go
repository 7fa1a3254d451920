package ops

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Overview is what there is to see at one glance. Who asks within two seconds sees the same one, and so
// for fifty times as long as it took to make: however many look, that costs a database a fiftieth of its
// time.
type Overview struct {
	At     time.Time      `json:"at"` // when it was made, on the clock of this process
	Queues []outbox.Queue `json:"queues"`
	// Minutes are those of the last hour.
	Minutes []outbox.Minute `json:"minutes,omitempty"`
	// Failures are the 20 kinds that came last.
	Failures []outbox.Failure `json:"failures,omitempty"`
	// Processes are those that are alive, and those that vanished within a day.
	Processes []outbox.Process `json:"processes,omitempty"`
	// Strangers are kinds of messages that no process that is alive takes, 20 at most, and consumers of
	// messages with keys, which have no payload type here.
	Strangers []outbox.Unregistered `json:"strangers,omitempty"`
	// Operations are those that are not over.
	Operations []Operation `json:"operations,omitempty"`
	// Late says why it is not newer, where it should be.
	Late string `json:"late,omitempty"`
}

const (
	overviewKept  = 2 * time.Second
	overviewShare = 50 // of the time that it takes, it is kept for

	failuresShown  = 20
	vanishedWithin = 24 * time.Hour
)

// overview is the one that was made last.
type overview struct {
	mu     sync.Mutex
	last   Overview
	until  time.Time     // when it is to be made anew
	making chan struct{} // closed once somebody has
}

// Overview returns what there is to see at one glance, from up to some seconds ago.
func (s *Seat) Overview(ctx context.Context) (Overview, error) {
	if err := s.may(View, ""); err != nil {
		return Overview{}, fmt.Errorf("ops: overview: %w", err)
	}
	o, err := s.desk.overview.get(ctx, s.desk.makeOverview)
	if err != nil {
		return Overview{}, err
	}
	o.Failures = store.Each(o.Failures, func(f outbox.Failure) outbox.Failure { return s.failure(ctx, f) })
	return o, nil
}

func (o *overview) get(ctx context.Context, remake func(context.Context) (Overview, error)) (Overview, error) {
	for {
		o.mu.Lock()
		known := !o.last.At.IsZero()
		switch {
		case known && (time.Now().Before(o.until) || o.making != nil):
			defer o.mu.Unlock()
			return o.last, nil
		case o.making == nil:
			o.making = make(chan struct{})
			o.mu.Unlock()
			return o.remake(ctx, remake)
		}
		making := o.making
		o.mu.Unlock()
		select {
		case <-making:
		case <-ctx.Done():
			return Overview{}, fmt.Errorf("ops: overview: %w", context.Cause(ctx))
		}
	}
}

func (o *overview) remake(ctx context.Context, remake func(context.Context) (Overview, error)) (Overview, error) {
	began := time.Now()
	made, err := remake(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.making)
	o.making = nil
	took := time.Since(began)
	o.until = time.Now().Add(overviewKept)
	switch {
	case err == nil:
		o.until = o.until.Add(max(0, overviewShare*took-overviewKept))
		made.At = began
		o.last = made
	case o.last.At.IsZero():
		return Overview{}, fmt.Errorf("ops: overview: %w", err)
	default:
		o.last.Late = err.Error()
	}
	return o.last, nil
}

func (d *Desk) makeOverview(ctx context.Context) (Overview, error) {
	return lookFor(ctx, d, 2*lookTime, func(ctx context.Context, db bun.IDB) (o Overview, err error) {
		if o.Queues, err = d.admin.Queues(ctx, db); err != nil {
			return o, err
		}
		if o.Minutes, err = d.admin.Minutes(ctx, db, time.Hour); err != nil {
			return o, err
		}
		if o.Failures, err = d.admin.Failures(ctx, db, "", failuresShown); err != nil {
			return o, err
		}
		fleet, err := d.admin.Processes(ctx, db, vanishedWithin)
		if err != nil {
			return o, err
		}
		if o.Strangers, err = d.strangers(ctx, db, fleet); err != nil {
			return o, err
		}
		for _, p := range fleet {
			if p.Status != outbox.ProcessStopped {
				o.Processes = append(o.Processes, p)
			}
		}
		rows, err := d.store.Operations(ctx, db, store.OperationFilter{States: names(Planned, Waiting, Trying, Running, Paused, Begun)}, 20)
		o.Operations = store.Each(rows, newOperation)
		return o, err
	})
}
