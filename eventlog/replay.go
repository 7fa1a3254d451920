package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// Replay defines which events a consumer gets again.
type Replay struct {
	// Name identifies the replay: calling [Log.Replay] again with the same name continues where
	// the last call ended. Up to 100 bytes.
	Name string
	// Consumer is the name of the consumer.
	Consumer string
	// After and UpTo are positions: the replay has the events after After, up to and including UpTo.
	// A zero After means the start of the log. A zero UpTo means its end when the replay begins.
	After, UpTo int64
	// Rate is the maximum number of messages written per second. Defaults to 1000.
	Rate int
}

// replayed is what identifies a stored replay.
type replayed struct {
	Consumer string `json:"consumer"`
	After    int64  `json:"after"`
	UpTo     int64  `json:"up_to"`
}

const (
	replayPage   = 200
	maxReplay    = 100                  // bytes of a name
	replayPause  = 2 * time.Millisecond // between pages, at least
	replayIdle   = 5 * time.Second      // how long a lost process can lock it
	replayPrefix = "replay:"
)

// replayer carries out a replay.
type replayer struct {
	Replay
	log      *Log
	store    *store.Store
	db       *bun.DB
	consumer bus.Consumer
	types    []string // of the consumer's events, under all their names
	end      int64    // the last position
}

func (r *replayer) run(ctx context.Context) (total int, err error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	if _, err := r.log.AssignPositions(ctx, r.db); err != nil {
		return 0, err
	}
	if err := r.enter(ctx); err != nil {
		return 0, err
	}
	for begun := time.Now(); ; {
		n, done, err := r.page(ctx)
		total += n
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx) // drivers have errors of their own for an interrupted statement
		}
		if err != nil || done {
			return total, err
		}
		if n > 0 {
			access.Wakeups(r.log.registry).Send(wakeup.Wake{PayloadTypes: access.PayloadTypes(r.consumer)})
		}
		due := begun.Add(time.Duration(total) * time.Second / time.Duration(r.Rate))
		if !outage.Pause(ctx, max(time.Until(due), replayPause)) {
			return total, context.Cause(ctx)
		}
	}
}

// check completes the replay and returns all mistakes in it.
func (r *replayer) check() error {
	r.Rate = cmp.Or(r.Rate, 1000)
	var errs []error
	if r.Name == "" || len(r.Name) > maxReplay {
		errs = append(errs, fmt.Errorf("%w: Name has %d bytes, 1 to %d are allowed", bus.ErrInvalidOption, len(r.Name), maxReplay))
	}
	if r.Rate < 1 || r.After < 0 || r.UpTo < 0 {
		errs = append(errs, fmt.Errorf("%w: Rate %d, After %d, UpTo %d: 0 or more is allowed", bus.ErrInvalidOption, r.Rate, r.After, r.UpTo))
	}
	if r.UpTo > 0 && r.UpTo <= r.After {
		errs = append(errs, fmt.Errorf("%w: After %d, UpTo %d: an UpTo greater than After, or 0, is allowed",
			bus.ErrInvalidOption, r.After, r.UpTo))
	}
	consumer, ok := r.log.registry.Consumer(r.Consumer)
	r.consumer = consumer
	r.types = slices.DeleteFunc(access.PayloadTypes(consumer), func(name string) bool {
		_, isEvent := r.log.types.find(name)
		return !isEvent
	})
	if !ok {
		errs = append(errs, fmt.Errorf("consumer %q: %w", r.Replay.Consumer, bus.ErrNoConsumer))
	} else if len(r.types) == 0 {
		errs = append(errs, fmt.Errorf("consumer %q: %w", r.Replay.Consumer, &UnknownTypeError{Type: consumer.PayloadType()}))
	}
	return errors.Join(append(errs, limits.CheckKey("name", r.Name))...)
}

// enter creates the replay's row, or checks that it is the same, and sets the replay's end.
func (r *replayer) enter(ctx context.Context) error {
	head, err := r.store.EventLog.Head(ctx, r.db)
	if err != nil {
		return err
	}
	wanted := replayed{Consumer: r.Replay.Consumer, After: r.After, UpTo: r.UpTo}
	text, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	sub := store.Subscription{Name: replayPrefix + r.Name, Version: 1, Shards: 1, Filter: string(text), Position: r.After, ReplayUntil: head}
	if err := txn.InTx(ctx, r.db, func(tx bun.Tx) error { return r.store.Readers.Subscribe(ctx, tx, sub) }); err != nil {
		return err
	}
	rows, err := r.store.Readers.List(ctx, r.db, sub.Name)
	if err != nil {
		return err
	}
	if rows[0].Filter != sub.Filter {
		return fmt.Errorf("%w: a replay of this name has begun with %s: use another name", bus.ErrInvalidOption, rows[0].Filter)
	}
	r.end = rows[0].ReplayUntil
	if r.UpTo > 0 {
		r.end = min(r.end, r.UpTo)
	}
	return nil
}

// page writes one page of messages and moves the replay past it.
func (r *replayer) page(ctx context.Context) (n int, done bool, err error) {
	err = txn.InTx(ctx, r.db, func(tx bun.Tx) error {
		n, done = 0, false
		sub, ok, err := r.store.Readers.Lock(ctx, tx, replayPrefix+r.Name, 1, 0, replayIdle)
		if err != nil || !ok { // another process holds it
			return err
		}
		done = sub.Position >= r.end
		if done {
			return nil
		}
		page := store.Page{
			After: sub.Position, UpTo: min(r.end, sub.Position+readWindow), Limit: min(replayPage, r.Rate),
			EventFilter: store.EventFilter{Types: r.types},
		}
		rows, err := r.store.EventLog.ReadEvents(ctx, tx, page)
		if err != nil {
			return err
		}
		to := page.UpTo
		if len(rows) == page.Limit {
			to = rows[len(rows)-1].Position
		}
		n, err = r.write(ctx, tx, rows)
		if err != nil {
			return err
		}
		_, err = r.store.Readers.Move(ctx, tx, sub, to)
		return err
	})
	if err != nil { // this page was rolled back
		n = 0
	}
	return n, done, err
}

// write writes a message for each event, and returns how many were not there yet.
func (r *replayer) write(ctx context.Context, tx bun.Tx, events []store.Event) (int, error) {
	rows := make([]store.NewMessage, len(events))
	for i, e := range events {
		headers, err := store.EncodeHeaders(
			store.Headers(e.Headers), store.Extras{Event: &bus.Event{Sequence: e.Sequence}, EventSize: len(e.Data), Replay: true},
		)
		if err != nil {
			return 0, err
		}
		m := bus.Message{ID: e.ID, PayloadType: e.Type, OrderingKey: e.Stream, Event: &bus.Event{Sequence: e.Sequence},
			InsertID: replayPrefix + r.Name + ":" + strconv.FormatInt(e.Sequence, 10)}
		rows[i] = store.RowOf(&m, r.consumer, headers)
	}
	written, err := r.store.Outbox.Insert(ctx, tx, rows)
	return len(written), err
}
