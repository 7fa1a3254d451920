package eventlog_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestAppendAtAnExpectedVersion(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db)
		for _, c := range []struct {
			name    string
			prior   int
			want    eventlog.ExpectedVersion
			refused bool
		}{
			{"no stream, of a new one", 0, eventlog.NoStream, false},
			{"no stream, of an old one", 2, eventlog.NoStream, true},
			{"exists, of a new one", 0, eventlog.StreamExists, true},
			{"exists, of an old one", 2, eventlog.StreamExists, false},
			{"any, of a new one", 0, eventlog.AnyVersion, false},
			{"any, of an old one", 2, eventlog.AnyVersion, false},
			{"exact, of a new one", 0, 1, true},
			{"exact, behind", 2, 1, true},
			{"exact, right", 2, 2, false},
			{"exact, ahead", 2, 3, true},
		} {
			stream := "account-" + c.name
			for range c.prior {
				a.append(stream, eventlog.AnyVersion, moved{1})
			}
			appended, err := a.try(stream, c.want, moved{7}, moved{8})
			if c.refused {
				wantConflict(t, err, int64(c.prior))
				if got := len(a.stream(stream)); got != c.prior {
					t.Errorf("%s: got %d events, want %d", c.name, got, c.prior)
				}
				continue
			}
			if err != nil || appended.Version != int64(c.prior+2) {
				t.Errorf("%s: got version %d and error %v, want %d and none", c.name, appended.Version, err, c.prior+2)
			}
			for i, event := range a.stream(stream) {
				if event.Version != int64(i+1) {
					t.Errorf("%s: got version %d at place %d", c.name, event.Version, i+1)
				}
			}
		}
	})
}

func TestAConflictLeavesTheTransactionUsable(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := newApp(t, db)
		a.append("account-1", eventlog.NoStream, opened{"ann"})
		a.exec("CREATE TABLE notes (n int)")
		err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
			for _, want := range []eventlog.ExpectedVersion{eventlog.NoStream, 5} {
				_, err := a.log.Append(ctx, tx, "account-1", want, moved{1})
				wantConflict(t, err, 1)
			}
			_, err := a.log.Append(ctx, tx, "account-2", eventlog.StreamExists, moved{1})
			wantConflict(t, err, 0)
			if _, err := tx.NewRaw("INSERT INTO notes VALUES (1)").Exec(ctx); err != nil {
				return err
			}
			_, err = a.log.Append(ctx, tx, "account-1", 1, moved{2})
			return err
		})
		if err != nil {
			t.Fatalf("transaction with conflicts: got %v, want it to commit", err)
		}
		if n := a.count("SELECT count(*) FROM notes"); n != 1 || len(a.stream("account-1")) != 2 {
			t.Errorf("got %d notes and events %v, want 1 and 2", n, a.stream("account-1"))
		}
	})
}

func TestWhatWasAppendedIsRead(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		a := setup{tables: bus.Tables{Prefix: "shop_"}}.newApp(t, db)
		var appended []eventlog.Appended
		err := a.inTx(func(ctx context.Context, tx bun.Tx) (err error) {
			appended, err = a.log.AppendAll(ctx, tx,
				eventlog.Write{Stream: "account-2", Expected: eventlog.NoStream, Events: []bus.Payload{opened{"it's ?"}, moved{1}},
					Headers: map[string]string{"tenant": "t"}},
				eventlog.Write{Stream: "account-1", Expected: eventlog.AnyVersion, Events: []bus.Payload{moved{2}}},
				eventlog.Write{Stream: "account-3", Expected: 9})
			if err == nil { // a stream is read as the transaction sees it
				for event, err := range a.log.ReadStream(ctx, tx, "account-1", 0) {
					if err != nil || event.Position != 0 && a.isPostgres() {
						t.Errorf("own event: got position %d and error %v, want none", event.Position, err)
					}
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		events := a.all(eventlog.Filter{})
		var got []string
		for _, e := range events {
			got = append(got, fmt.Sprint(e.Position, e.Stream, e.Version, e.Data, e.Headers, e.Schema))
			if e.RecordedAt.IsZero() || e.ID == (uuid.UUID{}) {
				t.Errorf("event %+v: got no time or no id", e)
			}
		}
		want := []string{"1 account-2 1 {it's ?} map[tenant:t] 1", "2 account-2 2 {1} map[tenant:t] 1", "3 account-1 1 {2} map[] 1"}
		if strings.ReplaceAll(fmt.Sprint(got), "account", " account") == "" || !reflect.DeepEqual(squeeze(got), squeeze(want)) {
			t.Errorf("log:\n got %q\nwant %q", got, want)
		}
		if appended[0].Version != 2 || appended[0].Sequence != events[1].Sequence || appended[1].Sequence != events[2].Sequence ||
			appended[2].Version != 0 {
			t.Errorf("appended: got %+v for events %+v", appended, events)
		}
		if got := len(a.all(eventlog.Filter{Types: []string{"account.moved"}})); got != 2 {
			t.Errorf("events by type: got %d, want 2", got)
		}
		if got := len(a.all(eventlog.Filter{Categories: []string{"order"}})); got != 0 {
			t.Errorf("events of another category: got %d, want 0", got)
		}
		for range 2 { // an iterator starts again
			reader := a.log.ReadLog(a.ctx, db, 1, eventlog.Filter{Categories: []string{"account"}})
			if n := seqLen(t, reader) + seqLen(t, reader); n != 4 {
				t.Errorf("events after the first, read twice: got %d, want 4", n)
			}
		}
	})
}

// squeeze leaves spaces out, which fmt.Sprint puts where it likes.
func squeeze(texts []string) (out []string) {
	for _, text := range texts {
		out = append(out, strings.ReplaceAll(text, " ", ""))
	}
	return out
}

func seqLen(t *testing.T, seq func(func(eventlog.RecordedEvent, error) bool)) (n int) {
	for _, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestAppendRefusesMistakesBeforeAnySQL(t *testing.T) {
	t.Parallel()
	a := newApp(t, testdb.SQLite(t))
	a.exec("DROP TABLE events")
	a.exec("DROP TABLE event_streams")
	for _, c := range []struct {
		name   string
		stream string
		want   eventlog.ExpectedVersion
		event  bus.Payload
		err    error
	}{
		{"nil", "account-1", eventlog.AnyVersion, nil, bus.ErrInvalidPayload},
		{"pointer", "account-1", eventlog.AnyVersion, &moved{}, bus.ErrInvalidPayload},
		{"no id", "account", eventlog.AnyVersion, moved{}, bus.ErrInvalidOption},
		{"no category", "-1", eventlog.AnyVersion, moved{}, bus.ErrInvalidOption},
		{"NUL", "account-\x00", eventlog.AnyVersion, moved{}, bus.ErrInvalidText},
		{"long", "account-" + strings.Repeat("x", 300), eventlog.AnyVersion, moved{}, bus.ErrTooLarge},
		{"version", "account-1", -3, moved{}, bus.ErrInvalidOption},
		{"large", "account-1", eventlog.AnyVersion, opened{strings.Repeat("x", 2<<20)}, bus.ErrTooLarge},
	} {
		if _, err := a.try(c.stream, c.want, c.event); !errors.Is(err, c.err) {
			t.Errorf("%s: got %v, want %v", c.name, err, c.err)
		}
	}
	if _, err := a.try("account-1", eventlog.AnyVersion, secret{}); err == nil || !isUnknown(err) {
		t.Errorf("unknown event: got %v, want UnknownTypeError", err)
	}
	if _, err := a.try("account-1", eventlog.AnyVersion, moved{}); !errors.Is(err, dberr.ErrSchema) {
		t.Errorf("without tables: got %v, want ErrSchemaOutdated", err)
	}
	err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
		w := eventlog.Write{Stream: "account-1", Events: []bus.Payload{moved{}}}
		_, err := a.log.AppendAll(ctx, tx, w, w)
		return err
	})
	if !errors.Is(err, bus.ErrInvalidOption) {
		t.Errorf("a stream twice: got %v, want ErrInvalidOption", err)
	}
	if _, err := a.log.Append(a.ctx, bun.Tx{}, "account-1", eventlog.AnyVersion, moved{}); err == nil {
		t.Error("append without a transaction: got no error")
	}
}

func isUnknown(err error) bool {
	_, ok := errors.AsType[*eventlog.UnknownTypeError](err)
	return ok
}

// TestSeveralStreamsDoNotDeadlock has many calls lock the same streams in
// different orders.
// Promise: append
func TestSeveralStreamsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	a := newApp(t, testdb.Postgres(t))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				// Not by RunInTx, which would try again.
				err := a.db.RunInTx(a.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func(ctx context.Context, tx bun.Tx) error {
					x, y := eventlog.Write{Stream: "account-x", Expected: eventlog.AnyVersion,
						Events: []bus.Payload{moved{1}}}, eventlog.Write{Stream: "account-y", Expected: eventlog.AnyVersion, Events: []bus.Payload{moved{2}}}
					if i%2 == 0 {
						x, y = y, x
					}
					_, err := a.log.AppendAll(ctx, tx, x, y)
					return err
				})
				if err != nil {
					t.Errorf("append to two streams: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(a.stream("account-x")); n != 160 {
		t.Errorf("events of x: got %d, want 160", n)
	}
}

func TestTheProduceChainMustPassEventsOn(t *testing.T) {
	t.Parallel()
	half := func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error {
			b.Messages = b.Messages[:1]
			return next(ctx, b)
		}
	}
	swallow := func(bus.ProduceFunc) bus.ProduceFunc {
		return func(context.Context, *bus.Batch) error { return nil }
	}
	for _, layer := range []bus.ProduceMiddleware{half, swallow} {
		a := setup{producer: outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{layer}}}.newApp(t, testdb.SQLite(t))
		if _, err := a.try("account-1", eventlog.AnyVersion, moved{1}, moved{2}); err == nil || !strings.Contains(err.Error(), "produce chain") {
			t.Errorf("append through a chain that loses events: got %v, want an error that says so", err)
		}
		if n := a.count("SELECT count(*) FROM events"); n != 0 {
			t.Errorf("events: got %d, want 0", n)
		}
	}
}

func TestLayersMayAddMessagesToAnAppend(t *testing.T) {
	t.Parallel()
	add := func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error {
			b.Messages = append(b.Messages, &bus.Message{PayloadType: "account.opened", Payload: []byte(`{}`)})
			return next(ctx, b)
		}
	}
	a := setup{producer: outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{add}}}.newApp(t, testdb.SQLite(t),
		bus.Consume("c", func(context.Context, opened) error { return nil }))
	testapp.OK(t, testapp.Second(a.try("account-1", eventlog.AnyVersion, moved{1})))
	if events, messages := a.count("SELECT count(*) FROM events"), a.count("SELECT count(*) FROM consumer_messages"); events != 1 ||
		messages != 1 {
		t.Errorf("got %d events and %d messages, want the event and the message that was added", events, messages)
	}
}

func TestTombstone(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		ran := make(chan eventlog.Tombstoned, 10)
		a := newApp(t, db,
			bus.Consume("never", func(context.Context, opened) error { t.Error("got an erased event"); return nil }),
			bus.Consume("purge", func(_ context.Context, e eventlog.Tombstoned) error { ran <- e; return nil }))
		a.append("account-1", eventlog.NoStream, opened{"ann"}, moved{1})
		a.append("account-2", eventlog.NoStream, moved{2})
		tombstone := func(stream string) error {
			return a.inTx(func(ctx context.Context, tx bun.Tx) error { return a.log.Tombstone(ctx, tx, stream) })
		}
		testapp.OK(t, tombstone("account-1"))
		a.process()
		if got := receive(t, ran); got.Stream != "account-1" {
			t.Errorf("tombstoned: got %+v, want account-1", got)
		}
		eventually(t, "everything is consumed", func() bool { return a.count("SELECT count(*) FROM consumer_messages") == 0 })
		events := a.all(eventlog.Filter{})
		if len(events) != 2 || events[0].Position != 3 || events[1].Position != 4 || events[1].Version != 3 {
			t.Errorf("log: got %+v, want what is left at positions 3 and 4", events)
		}
		for _, want := range []eventlog.ExpectedVersion{eventlog.AnyVersion, eventlog.StreamExists, eventlog.NoStream, 3} {
			if _, err := a.try("account-1", want, moved{1}); !errors.Is(err, eventlog.ErrTombstoned) {
				t.Errorf("append at %v: got %v, want ErrTombstoned", want, err)
			}
		}
		if err := tombstone("account-1"); !errors.Is(err, eventlog.ErrTombstoned) {
			t.Errorf("tombstone twice: got %v, want ErrTombstoned", err)
		}
		wantConflict(t, tombstone("account-9"), 0)
		if n := a.count("SELECT count(*) FROM events WHERE data LIKE '%ann%'"); n != 0 {
			t.Errorf("payloads left: got %d, want 0", n)
		}
	})
}
