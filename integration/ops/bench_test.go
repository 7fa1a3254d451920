package ops_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// crowded is a database with so many pending messages, a tenth as many poisoned ones, 20 consumers and 80
// groups. ASYNCMONOLITH_BENCH_ROWS says how many: 20,000 unless set, a million for the figures of
// docs/contributing/performance.md.
func crowded(b *testing.B, db *bun.DB) (*ops.Service, int) {
	b.Helper()
	rows := testapp.BenchRows(b, 20_000)
	registry := testapp.Must[*bus.Registry](b)(bus.NewRegistry())
	ctx := b.Context()
	testapp.OK(b, outbox.Migrate(ctx, db, registry.Tables()))
	type row = []any
	now := time.Now()
	insert := func(statement, values string, n int, of func(i int) row) {
		for from := 0; from < n; from += 500 {
			var args []any
			text := statement
			for i := from; i < min(n, from+500); i++ {
				if i > from {
					text += ", "
				}
				text += values
				args = append(args, of(i)...)
			}
			testapp.OK(b, testapp.Second(db.NewRaw(text, args...).Exec(ctx)))
		}
	}
	at := func(i int) bun.Safe { return bun.Safe(testapp.In(db, -time.Duration(i)*time.Millisecond)) }
	insert(`INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, headers, created_at, available_after) VALUES `, "(?, ?, 'p', ?, '{}', ?, ?)", rows, func(i int) row {
		return row{testID(db, now.Add(time.Duration(i)*time.Millisecond)), fmt.Sprintf("consumer-%02d", i%20),
			`{"id":"an order of usual size","lines":[1,2,3,4,5,6,7,8]}`, at(rows - i), at(rows - i)}
	})
	insert(`INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, headers, created_at, available_after, attempts, crashes, errors, poisoned_at, reason, fingerprint) VALUES `,
		"(?, ?, ?, 'p', ?, '{}', ?, ?, 5, 0, '[]', ?, 'attempt 5 of 5 failed', ?)", rows/10, func(i int) row {
			return row{10_000_000 + i, testID(db, now), fmt.Sprintf("consumer-%02d", i%20), `{"id":"an order of usual size"}`, at(i), at(i),
				at(i), fmt.Sprintf("1%016d", i/20%4)}
		})
	analyze := map[string]string{"pg": "VACUUM ANALYZE", "sqlite": "ANALYZE",
		"mysql": "ANALYZE TABLE consumer_messages, poisoned_messages"}[db.Dialect().Name().String()]
	testapp.OK(b, testapp.Second(db.ExecContext(ctx, analyze)))
	d := testapp.Must[*ops.Service](b)(ops.New(ops.Config{DB: db, Registry: registry, Redact: ops.ShowAll, UndoWindow: -1}))
	return d, rows
}

// testID is a message id as it is stored.
func testID(db *bun.DB, at time.Time) any {
	id := uuid.Must(uuid.NewV7())
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (8 * (5 - i)))
	}
	return id
}

// BenchmarkService is what people see, and what a bulk change costs.
func BenchmarkService(b *testing.B) {
	testdb.EachBenchmark(b, func(b *testing.B, db *bun.DB) {
		d, rows := crowded(b, db)
		s, ctx := operator.As(d, someone(ops.Administrator)), context.WithoutCancel(b.Context())
		wanted, _, err := s.Messages().List(ctx, admin.Filter{Consumer: "consumer-07"}, admin.Page{})
		if err != nil {
			b.Fatal(err)
		}
		looks := []struct {
			name string
			look func() error
		}{
			{"page", func() error {
				_, _, err := s.Messages().List(ctx, admin.Filter{Consumer: "consumer-07"}, admin.Page{})
				return err
			}},
			{"rare", func() error {
				_, _, err := s.Messages().List(ctx, admin.Filter{Retrying: true}, admin.Page{})
				return err
			}},
			{"explain", func() error { return testapp.Second(s.Messages().Explain(ctx, wanted[0].ID)) }},
			{"groups", func() error { _, _, err := s.Poisoned().Groups(ctx, ""); return err }},
			{"poisoned", func() error {
				_, _, err := s.Poisoned().List(ctx, poison.Filter{Consumer: "consumer-07"}, admin.Page{})
				return err
			}},
			{"find", func() error {
				var place admin.Cursor
				for {
					found, next, err := s.Messages().Find(ctx, admin.Search{MessageID: wanted[len(wanted)-1].MessageID}, place)
					if err != nil || len(found) > 0 {
						return err
					}
					if next == nil {
						return fmt.Errorf("not found")
					}
					place = *next
				}
			}},
			{"preview", func() error {
				return testapp.Second(s.Operations().Plan(ctx, ops.Requeue, ops.Target{Poisoned: &poison.Filter{Consumer: "consumer-07"}}))
			}},
		}
		for _, l := range looks {
			b.Run(l.name, func(b *testing.B) {
				for b.Loop() {
					testapp.OK(b, l.look())
				}
			})
		}
		b.Run("undo", func(b *testing.B) {
			for b.Loop() {
				benchUndo(b, db, rows/10)
			}
		})
		paced, all := poison.Filter{Consumer: "consumer-01"}, rows/10
		for i := range min(1000, rows/200) {
			paced.IDs = append(paced.IDs, int64(10_000_001+20*i))
		}
		b.Run("paced", func(b *testing.B) {
			for range b.N {
				n := len(paced.IDs)
				took := benchRequeue(b, d, s, ops.Target{Poisoned: &paced}, 100, n)
				b.ReportMetric(took.Seconds()/(float64(n)/100)*100, "%-of-its-time")
				all -= n
			}
		})
		b.Run("requeue", func(b *testing.B) {
			for range b.N {
				took := benchRequeue(b, d, s, ops.Target{Poisoned: &poison.Filter{}}, 5000, all)
				b.ReportMetric(float64(all)/took.Seconds(), "msgs/s")
			}
		})
	})
}

// undone is how many operations are undone.
const undone = 100

// benchUndo starts operations and undoes them inside of their window, at one time of it and another, beside a
// runner that would carry them out. Nothing may have changed.
func benchUndo(b *testing.B, db *bun.DB, poisoned int) {
	b.Helper()
	const undoWindow = 100 * time.Millisecond
	registry := testapp.Must[*bus.Registry](b)(bus.NewRegistry())
	d := testapp.Must[*ops.Service](b)(ops.New(ops.Config{DB: db, Registry: registry, Redact: ops.ShowAll, UndoWindow: undoWindow,
		Logger: slog.New(slog.DiscardHandler)}))
	defer running(b, d)()
	s, ctx, tried := operator.As(d, someone(ops.Administrator)), context.WithoutCancel(b.Context()), 0
	for found := 0; found < undone; tried++ {
		o, err := s.Operations().Plan(ctx, ops.Discard, ops.Target{Poisoned: &poison.Filter{Consumer: "consumer-03"}})
		if err == nil {
			o, err = s.Operations().Start(ctx, o.ID, ops.StartOptions{Rate: 1, Canary: -1, Reason: "bench"})
		}
		if err != nil {
			b.Fatal(err)
		}
		<-time.After(undoWindow * time.Duration(found) / undone / 2)
		switch _, err := s.Operations().Undo(ctx, "", o.ID); {
		case err == nil:
			found++
		case !errors.Is(err, ops.ErrBusy) && !errors.Is(err, ops.ErrInvalidState):
			b.Fatal(err)
		}
	}
	var left int
	testapp.OK(b, db.NewRaw("SELECT count(*) FROM poisoned_messages").Scan(ctx, &left))
	b.ReportMetric(float64(poisoned-left), "changed")
	b.ReportMetric(float64(undone), "undone")
	b.ReportMetric(float64(tried), "tried")
}

// running runs what carries operations out until it is stopped.
func running(b *testing.B, d *ops.Service) (stop func()) {
	b.Helper()
	r := testapp.Must[*ops.Runner](b)(ops.NewRunner(d, nil))
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() { cancel(); <-done }
}

// benchRequeue requeues messages at a rate, and returns how long that took.
func benchRequeue(b *testing.B, d *ops.Service, s *operator.Session, target ops.Target, rate, n int) time.Duration {
	b.Helper()
	defer running(b, d)()
	ctx := context.WithoutCancel(b.Context())
	o, err := s.Operations().Plan(ctx, ops.Requeue, target)
	if err == nil {
		o, err = s.Operations().Start(ctx, o.ID, ops.StartOptions{Rate: rate, Canary: -1, Reason: "bench"})
	}
	for began := time.Now(); err == nil && o.State != ops.Done; <-time.After(20 * time.Millisecond) {
		now, failed := s.Operations().Get(ctx, o.ID)
		if failed == nil {
			o = now
		} else if !errors.Is(failed, ops.ErrBusy) {
			err = failed
		}
		if time.Since(began) > 5*time.Minute {
			b.Fatalf("got %+v after 5 min", o)
		}
	}
	if err != nil || int(o.Changed) != n {
		b.Fatalf("got %+v, error %v, want %d changed", o, err, n)
	}
	return o.FinishedAt.Sub(o.StartsAt)
}
