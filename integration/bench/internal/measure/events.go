package measure

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// booked is the event of the measurements.
type booked struct {
	Account int   `json:"account"`
	Amount  int   `json:"amount"`
	At      int64 `json:"at"` // when it was committed, about: Unix nanoseconds before the append
}

func (booked) PayloadType() string { return "bench.booked" }

// ledger is an application with an event log.
type ledger struct {
	db       *bun.DB
	registry *bus.Registry
	producer *outbox.Producer
	log      *eventlog.Log
}

// withLedger opens a ledger in a database of its own.
func (b *Bench) withLedger(ctx context.Context, use func(ctx context.Context, l *ledger) error) error {
	return b.fresh(ctx, func(r *run) (err error) {
		config, err := pgx.ParseConfig(r.dsn)
		if err != nil {
			return err
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		conns := stdlib.OpenDB(*config)
		conns.SetMaxOpenConns(32)
		conns.SetMaxIdleConns(32)
		l := &ledger{db: bun.NewDB(conns, pgdialect.New())}
		defer func() { err = errors.Join(err, l.db.Close()) }()
		types, err := eventlog.NewTypes(eventlog.Event[booked]())
		if err != nil {
			return err
		}
		if l.registry, err = (bus.RegistryConfig{Events: types}).NewRegistry(); err != nil {
			return err
		}
		if l.producer, err = outbox.NewProducer(l.registry, outbox.ProducerConfig{}); err != nil {
			return err
		}
		if l.log, err = eventlog.NewLog(l.registry, l.producer, eventlog.LogConfig{}); err != nil {
			return err
		}
		if err := outbox.Migrate(r.ctx, l.db, l.registry.Tables()); err != nil {
			return err
		}
		return use(r.ctx, l)
	})
}

// append appends n events to a stream in a transaction of its own.
func (l *ledger) append(ctx context.Context, stream string, n int) error {
	events := make([]bus.Payload, n)
	for i := range events {
		events[i] = booked{Account: i, Amount: 1, At: time.Now().UnixNano()}
	}
	return l.producer.RunInTx(ctx, l.db, func(ctx context.Context, tx bun.Tx) error {
		_, err := l.log.Append(ctx, tx, stream, eventlog.AnyVersion, events...)
		return err
	})
}

// Append measures events appended a second, by writers that each have a stream,
// for that long. With numbering, the events are numbered as they come.
func (b *Bench) Append(ctx context.Context, perCall, writers int, numbering bool, long time.Duration) (rate float64, err error) {
	err = b.withLedger(ctx, func(ctx context.Context, l *ledger) error {
		var appended atomic.Int64
		until, stop := context.WithTimeout(ctx, long)
		defer stop()
		errs := make([]error, writers+1)
		var working, numberer sync.WaitGroup
		begun := time.Now()
		for w := range writers {
			working.Go(func() {
				for until.Err() == nil && errs[w] == nil {
					if errs[w] = l.append(ctx, fmt.Sprintf("bench-%d", w), perCall); errs[w] == nil {
						appended.Add(int64(perCall))
					}
				}
			})
		}
		if numbering {
			numberer.Go(func() {
				ticker := time.NewTicker(5 * time.Millisecond)
				defer ticker.Stop()
				for until.Err() == nil && errs[writers] == nil {
					_, errs[writers] = l.log.AssignPositions(ctx, l.db)
					<-ticker.C
				}
			})
		}
		working.Wait()
		rate = float64(appended.Load()) / time.Since(begun).Seconds()
		numberer.Wait()
		return errors.Join(errs...)
	})
	return rate, err
}

// backlog appends events to many streams, 1,000 a call.
func (l *ledger) backlog(ctx context.Context, events int) error {
	for i := range events / 1000 {
		if err := l.append(ctx, fmt.Sprintf("bench-%d", i), 1000); err != nil {
			return err
		}
	}
	return nil
}

// Number measures how many events of a backlog are numbered a second.
func (b *Bench) Number(ctx context.Context, events int) (rate float64, err error) {
	err = b.withLedger(ctx, func(ctx context.Context, l *ledger) error {
		if err := l.backlog(ctx, events); err != nil {
			return err
		}
		begun := time.Now()
		n, err := l.log.AssignPositions(ctx, l.db)
		if err == nil && n != events {
			err = fmt.Errorf("%d of %d events numbered", n, events)
		}
		rate = float64(n) / time.Since(begun).Seconds()
		return err
	})
	return rate, err
}

// Project measures how many events of a backlog a projection applies a second:
// nothing at all, or one upsert for each.
func (b *Bench) Project(ctx context.Context, events int, upsert bool) (rate float64, err error) {
	err = b.withLedger(ctx, func(ctx context.Context, l *ledger) error {
		if err := l.backlog(ctx, events); err != nil {
			return err
		}
		if _, err := l.log.AssignPositions(ctx, l.db); err != nil {
			return err
		}
		if _, err := l.db.ExecContext(ctx, "CREATE TABLE balances (account int PRIMARY KEY, amount bigint NOT NULL)"); err != nil {
			return err
		}
		var applied int
		runner, err := l.runner(func(ctx context.Context, tx bun.Tx, e booked) error {
			applied++
			if !upsert {
				return nil
			}
			_, err := tx.NewRaw("INSERT INTO balances AS b VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET amount = b.amount + "+
				"EXCLUDED.amount", e.Account, e.Amount).
				Exec(ctx)
			return err
		})
		if err != nil {
			return err
		}
		begun := time.Now()
		_, err = runner.CatchUp(ctx)
		rate = float64(applied) / time.Since(begun).Seconds()
		if err == nil && applied != events {
			err = fmt.Errorf("%d of %d events applied", applied, events)
		}
		return err
	})
	return rate, err
}

func (l *ledger) runner(apply func(ctx context.Context, tx bun.Tx, e booked) error) (*projection.Runner, error) {
	return projection.NewRunner(l.db, l.log, projection.RunnerConfig{Logger: slog.New(slog.DiscardHandler)},
		projection.Projection{Name: "bench", On: []projection.Handler{projection.On(apply)}})
}

// appendRate is how many events are appended a second while their latency is
// measured.
const appendRate = 1000

// EventLatency measures the time from just before the append, of 10 events each, to a
// projection in the same process, in milliseconds, at 1,000 events a second. With
// idle, a transaction that has appended stays open meanwhile.
func (b *Bench) EventLatency(ctx context.Context, events int, idle bool) (latencies []float64, err error) {
	const perCall = 10
	err = b.withLedger(ctx, func(ctx context.Context, l *ledger) error {
		found := make(chan float64, events)
		runner, err := l.runner(func(_ context.Context, _ bun.Tx, e booked) error {
			found <- float64(time.Now().UnixNano()-e.At) / float64(time.Millisecond)
			return nil
		})
		if err != nil {
			return err
		}
		if idle {
			tx, err := l.db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback() //nolint:errcheck // it is to be forgotten
			if _, err := l.log.Append(ctx, tx, "bench-idle", eventlog.AnyVersion, booked{}); err != nil {
				return err
			}
		}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- runner.Run(running) }()
		err = l.trickle(ctx, events/perCall, perCall)
		for len(latencies) < events && err == nil {
			select {
			case ms := <-found:
				latencies = append(latencies, ms)
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		stop()
		return errors.Join(err, <-ended)
	})
	return latencies, err
}

// trickle appends at a steady rate, to a stream each.
func (l *ledger) trickle(ctx context.Context, calls, perCall int) error {
	errs := make([]error, calls)
	var writers sync.WaitGroup
	ticker := time.NewTicker(time.Second * time.Duration(perCall) / appendRate)
	defer ticker.Stop()
	for i := range calls {
		<-ticker.C
		writers.Go(func() { errs[i] = l.append(ctx, fmt.Sprintf("bench-%d", i), perCall) })
	}
	writers.Wait()
	return errors.Join(errs...)
}
