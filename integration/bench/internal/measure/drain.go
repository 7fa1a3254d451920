package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/child"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/server"
)

// produceBatch is the number of messages of one produce.
const produceBatch = 1000

// Drain is the measurement of a backlog: all of it is produced first, then all
// of it is consumed. The zero value of every field but Messages is the plain case.
type Drain struct {
	Messages int
	// Consumers is how many consumers the contender has for each message.
	// Defaults to 1.
	Consumers int
	// Size is about the size of a payload in bytes.
	Size int
	// Transactional consumers insert one row each.
	Transactional bool
	// Handler is how long each run takes.
	Handler time.Duration
	// Pin is how long a snapshot stays open, from just before the consuming starts.
	Pin time.Duration
	// Unregistered is how many messages of consumers that nobody registers wait in front.
	Unregistered int
	// Foreign is how many rows wait in front that nobody takes: half are of unknown
	// consumers, half of a payload type that the consumer does not take any more.
	Foreign int
	// Dead is how many rows were in front of the backlog until they were deleted, with a
	// snapshot open that keeps them: it stays open until all is consumed.
	Dead int
}

// Drained is what a Drain found; rates are in messages a second. A message with
// several consumers counts once for each in Rate.
type Drained struct {
	// ProduceRate is that of the backlog's making, in batches of 1,000.
	ProduceRate float64
	// Rate is from the start of the consuming until all is settled.
	Rate float64
	// WAL is how many bytes the server logged for a message, from insert to settle.
	WAL float64
	// Tenths is the rate within each tenth of the backlog.
	Tenths []float64
	// Cost is that of the consuming.
	Cost Cost
}

// Drain measures a contender on PostgreSQL.
func (b *Bench) Drain(ctx context.Context, c contender.Contender, d Drain) (found Drained, err error) {
	err = b.fresh(ctx, func(r *run) error {
		if err := r.produceUnregistered(d.Unregistered); err != nil {
			return err
		}
		if found, err = r.drain(c, d); err != nil || !d.Transactional {
			return err
		}
		return r.checkEffects(d.Messages)
	})
	return found, err
}

// DrainSQLite measures ours in a file of its own.
func (b *Bench) DrainSQLite(ctx context.Context, v contender.Variant, d Drain) (found Drained, err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return drainElsewhere(ctx, filepath.Join(dir, "bench.db"), contender.OursSQLite(v), d)
}

// DrainMariaDB measures ours in a database of its own.
func (b *Bench) DrainMariaDB(ctx context.Context, v contender.Variant, d Drain) (found Drained, err error) {
	dsn, drop, err := server.FreshMariaDB(ctx)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	return drainElsewhere(ctx, dsn, contender.OursMariaDB(v), d)
}

// drainElsewhere measures a contender that is not on PostgreSQL.
func drainElsewhere(ctx context.Context, dsn string, c contender.Contender, d Drain) (found Drained, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	err = runIn(ctx, &run{dsn: dsn}, func(r *run) (err error) {
		found, err = r.drain(c, d)
		return err
	})
	return found, err
}

func (r *run) drain(c contender.Contender, d Drain) (found Drained, err error) {
	consumers := max(d.Consumers, 1)
	t := newTally(d.Messages, consumers)
	work := contender.Work{Handle: t.handle, Transactional: d.Transactional, Wire: new(contender.Wire)}
	if d.Handler > 0 {
		work.Handle = func(payload contender.Signup) {
			<-time.After(d.Handler)
			t.handle(payload)
		}
	}
	err = r.with(c, work, func(system contender.System) (err error) {
		release, err := r.obstruct(d)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, release()) }()
		before, err := r.logged(true)
		if err != nil {
			return err
		}
		if found.ProduceRate, err = r.produce(system, d); err != nil {
			return err
		}
		if err := r.consume(system, t, d, work.Wire, &found); err != nil {
			return err
		}
		after, err := r.logged(false)
		found.WAL = float64(after-before) / float64(d.Messages)
		return errors.Join(err, t.check(), system.Verify(r.ctx))
	})
	return found, err
}

// logged returns how much the server has logged, after a checkpoint if asked:
// what is written after one is logged at greater length.
func (r *run) logged(checkpoint bool) (bytes int64, err error) {
	if r.server == nil {
		return 0, nil // not PostgreSQL
	}
	if checkpoint {
		if err := r.server.Checkpoint(r.ctx); err != nil {
			return 0, fmt.Errorf("checkpoint: %w", err)
		}
	}
	return r.server.WAL(r.ctx)
}

// consume measures the consuming of a backlog.
func (r *run) consume(system contender.System, t *tally, d Drain, wire *contender.Wire, found *Drained) error {
	release, err := r.prepare(d)
	if err != nil {
		return err
	}
	cost, start := r.meter(wire), time.Now()
	stop, err := system.Start(r.ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("start: %w", err), release())
	}
	err = t.wait(r.ctx)
	if err == nil {
		err = r.settled(system)
	}
	found.Rate = float64(t.runs) / time.Since(start).Seconds()
	found.Cost = cost()
	found.Tenths = t.progress(start)
	return errors.Join(err, stop(), release())
}

// produce makes the backlog and returns the rate of that.
func (r *run) produce(system contender.System, d Drain) (rate float64, err error) {
	var spent time.Duration // without the making of payloads
	for first := 0; first < d.Messages; first += produceBatch {
		batch := contender.Signups(first, min(produceBatch, d.Messages-first), d.Size)
		start := time.Now()
		if err := system.Produce(r.ctx, batch); err != nil {
			return 0, fmt.Errorf("produce: %w", err)
		}
		spent += time.Since(start)
	}
	return float64(d.Messages) / spent.Seconds(), nil
}

// prepare does what belongs between producing and consuming.
func (r *run) prepare(d Drain) (release func() error, err error) {
	release = func() error { return nil }
	if r.server == nil { // not PostgreSQL
		return release, nil
	}
	if err := server.Analyze(r.ctx, r.dsn); err != nil {
		return nil, fmt.Errorf("analyze: %w", err)
	}
	if d.Pin > 0 {
		return server.Pin(r.ctx, r.dsn, d.Pin)
	}
	return release, nil
}

// produceUnregistered writes messages of a consumer that nobody registers later.
func (r *run) produceUnregistered(n int) error {
	if n == 0 {
		return nil
	}
	other := contender.Ours("other", contender.Variant{Consumer: "stranger"})
	return r.with(other, contender.Work{}, func(system contender.System) error {
		_, err := r.produce(system, Drain{Messages: n})
		return err
	})
}

// obstruct puts rows in front of a backlog that is still to be produced.
func (r *run) obstruct(d Drain) (release func() error, err error) {
	release = func() error { return nil }
	kind := server.Kind{Consumer: "count-0", Payload: contender.Signup{}.PayloadType()}
	if d.Foreign > 0 {
		former, unknown := kind, kind
		former.Payload, unknown.Consumer = "user.signed_up.long_ago", "unknown"
		if err := server.Fill(r.ctx, r.dsn, d.Foreign, former, unknown); err != nil {
			return nil, err
		}
	}
	if d.Dead > 0 {
		if err := server.Fill(r.ctx, r.dsn, d.Dead, kind); err != nil {
			return nil, err
		}
		if release, err = server.Pin(r.ctx, r.dsn, timeLimit); err != nil {
			return nil, err
		}
		if err := server.Empty(r.ctx, r.dsn); err != nil {
			return nil, errors.Join(err, release())
		}
	}
	return release, nil
}

func (r *run) checkEffects(want int) error {
	got, err := server.Count(r.ctx, r.dsn, contender.Effects)
	if err == nil && got != want {
		err = fmt.Errorf("the handlers' transactions left %d rows, want %d", got, want)
	}
	return err
}

// DrainProcesses measures a backlog that several processes of a contender share.
func (b *Bench) DrainProcesses(ctx context.Context, c contender.Contender, messages, processes int) (rate float64, err error) {
	err = b.fresh(ctx, func(r *run) error {
		return r.with(c, contender.Work{}, func(system contender.System) error {
			if _, err := r.produce(system, Drain{Messages: messages}); err != nil {
				return err
			}
			if _, err := r.prepare(Drain{}); err != nil {
				return err
			}
			children, err := r.spawn(processes, child.Request{Contender: c.Name, DSN: r.dsn})
			if err != nil {
				return err
			}
			start := time.Now()
			if err := children.each((*child.Process).Go); err != nil {
				return err
			}
			if err := r.settled(system); err != nil {
				return err
			}
			rate = float64(messages) / time.Since(start).Seconds()
			found, err := children.finish()
			if err != nil {
				return err
			}
			return errors.Join(checkRuns(int64(messages), int64(messages), found.Handled, found.Sum), system.Verify(r.ctx))
		})
	})
	return rate, err
}
