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
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
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
	// After and UpTo are positions: events after After, up to and including UpTo. Zero means the
	// start of the log, and its end when the replay begins.
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

// Replay writes a message for each event of the consumer, marked as a replay (bus.Message), and
// returns how many this call has written. An outbox.Processor runs them as usual;
// middleware.SkipOnReplay protects consumers whose effects must not happen twice. Each event is
// written once per name, even after crashes: pages and the replay's progress commit together.
// Continuing with another consumer or range is an error.
func (l *Log) Replay(ctx context.Context, db *bun.DB, replay Replay) (total int, err error) {
	total, err = l.replay(ctx, db, replay)
	return total, dberr.Wrap(err, "eventlog: replay %q", replay.Name)
}

func (l *Log) replay(ctx context.Context, db *bun.DB, replay Replay) (total int, err error) {
	s, _, err := l.on(db)
	if err != nil {
		return 0, err
	}
	consumer, err := l.checkReplay(&replay)
	if err != nil {
		return 0, err
	}
	if _, err := l.AssignPositions(ctx, db); err != nil {
		return 0, err
	}
	upTo, err := l.enterReplay(ctx, s, db, replay)
	if err != nil {
		return 0, err
	}
	for begun := time.Now(); ; {
		n, done, err := l.replayPage(ctx, s, db, replay, consumer, upTo)
		if total += n; err != nil || done {
			return total, err
		}
		if n > 0 {
			l.registry.Wakeups().Send(wakeup.Wake{PayloadTypes: consumer.PayloadTypes()})
		}
		due := begun.Add(time.Duration(total) * time.Second / time.Duration(replay.Rate))
		if !outage.Pause(ctx, max(time.Until(due), replayPause)) {
			return total, context.Cause(ctx)
		}
	}
}

func (l *Log) checkReplay(r *Replay) (bus.Consumer, error) {
	r.Rate = cmp.Or(r.Rate, 1000)
	var errs []error
	if r.Name == "" || len(r.Name) > maxReplay {
		errs = append(errs, fmt.Errorf("%w: Name has %d bytes, 1 to %d are allowed", bus.ErrInvalidOption, len(r.Name), maxReplay))
	}
	if r.Rate < 1 || r.After < 0 || r.UpTo < 0 {
		errs = append(errs, fmt.Errorf("%w: Rate %d, After %d, UpTo %d: 0 or more is allowed", bus.ErrInvalidOption, r.Rate, r.After, r.UpTo))
	}
	if r.UpTo > 0 && r.UpTo <= r.After {
		errs = append(errs, fmt.Errorf("%w: After %d, UpTo %d: there is nothing between them", bus.ErrInvalidOption, r.After, r.UpTo))
	}
	consumer, ok := l.registry.Consumer(r.Consumer)
	if !ok {
		errs = append(errs, fmt.Errorf("consumer %q: %w", r.Consumer, bus.ErrNoConsumer))
	} else if len(l.eventsOf(consumer)) == 0 {
		errs = append(errs, fmt.Errorf("consumer %q: %w", r.Consumer, &UnknownTypeError{Type: consumer.PayloadType()}))
	}
	return consumer, errors.Join(append(errs, limits.CheckKey("name", r.Name))...)
}

// eventsOf returns the event types of a consumer, under all their names.
func (l *Log) eventsOf(c bus.Consumer) []string {
	return slices.DeleteFunc(c.PayloadTypes(), func(name string) bool { return l.types.Names(name) == nil })
}

// enterReplay creates the replay's row, or checks that it is the same, and returns the replay's
// end.
func (l *Log) enterReplay(ctx context.Context, s *store.Store, db *bun.DB, r Replay) (upTo int64, err error) {
	head, err := s.EventLog.Head(ctx, db)
	if err != nil {
		return 0, err
	}
	wanted := replayed{Consumer: r.Consumer, After: r.After, UpTo: r.UpTo}
	text, err := json.Marshal(wanted)
	if err != nil {
		return 0, err
	}
	sub := store.Subscription{Name: replayPrefix + r.Name, Version: 1, Shards: 1, Filter: string(text), Position: r.After, ReplayUntil: head}
	if err := txn.InTx(ctx, db, func(tx bun.Tx) error { return s.Readers.Subscribe(ctx, tx, sub) }); err != nil {
		return 0, err
	}
	rows, err := s.Readers.List(ctx, db, sub.Name)
	if err != nil {
		return 0, err
	}
	if rows[0].Filter != sub.Filter {
		return 0, fmt.Errorf("%w: it has begun as %s: give it another name", bus.ErrInvalidOption, rows[0].Filter)
	}
	upTo = rows[0].ReplayUntil
	if r.UpTo > 0 {
		upTo = min(upTo, r.UpTo)
	}
	return upTo, nil
}

// replayPage writes one page of messages and moves the replay past it.
func (l *Log) replayPage(ctx context.Context, s *store.Store, db *bun.DB, r Replay, consumer bus.Consumer, upTo int64) (n int, done bool, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		n, done = 0, false
		sub, ok, err := s.Readers.Lock(ctx, tx, replayPrefix+r.Name, 1, 0, replayIdle)
		if err != nil || !ok { // another process holds it
			return err
		}
		if done = sub.Position >= upTo; done {
			return nil
		}
		page := store.Page{After: sub.Position, UpTo: min(upTo, sub.Position+readWindow), Limit: min(replayPage, r.Rate),
			EventFilter: store.EventFilter{Types: l.eventsOf(consumer)}}
		rows, err := s.EventLog.ReadEvents(ctx, tx, page)
		if err != nil {
			return err
		}
		to := page.UpTo
		if len(rows) == page.Limit {
			to = rows[len(rows)-1].Position
		}
		if n, err = l.deliverAgain(ctx, s, tx, r, consumer, rows); err != nil {
			return err
		}
		_, err = s.Readers.Move(ctx, tx, sub, to)
		return err
	})
	if err != nil { // this page was rolled back
		n = 0
	}
	return n, done, err
}

func (l *Log) deliverAgain(ctx context.Context, s *store.Store, tx bun.Tx, r Replay, consumer bus.Consumer, events []store.Event) (int, error) {
	rows := make([]store.NewMessage, len(events))
	for i, e := range events {
		headers, err := store.EncodeHeaders(store.Headers(e.Headers), store.Extras{Event: &bus.Event{Sequence: e.Sequence}, EventSize: len(e.Data), Replay: true})
		if err != nil {
			return 0, err
		}
		m := bus.Message{ID: e.ID, PayloadType: e.Type, OrderingKey: e.Stream, Event: &bus.Event{Sequence: e.Sequence},
			InsertID: replayPrefix + r.Name + ":" + strconv.FormatInt(e.Sequence, 10)}
		rows[i] = store.RowOf(&m, consumer, headers)
	}
	written, err := s.Outbox.Insert(ctx, tx, rows)
	return len(written), err
}
