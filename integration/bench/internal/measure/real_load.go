package measure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/server"
)

const (
	loadWarmUp    = time.Second
	loadProducers = 8
	// loadRest is how long the results of the last messages may take to be written.
	loadRest = 300 * time.Millisecond
	// mostBehind ends a measurement in which an application does not keep up.
	mostBehind = 30 * time.Second
)

// Loaded is what a measurement of a steady load found.
type Loaded struct {
	Cost Cost
	// Messages is how many were written, and Rate how many a second.
	Messages int
	Rate     float64
	// Starts are the times from before each transaction to the start of the consumer, in
	// milliseconds.
	Starts []float64
	// Commits and WAL are what the server committed and logged for a message.
	Commits, WAL float64
}

// load is one measurement of an application.
type load struct {
	run    *run
	app    contender.App
	rate   int
	length time.Duration
	n      atomic.Int64 // the next task
	done   atomic.Int64
	mu     sync.Mutex
	starts []float64
}

// RealLoad measures an application whose transactions write messages at a steady rate.
func (b *Bench) RealLoad(ctx context.Context, name string, rate int, length time.Duration) (found Loaded, err error) {
	err = b.fresh(ctx, func(r *run) (err error) {
		l := &load{run: r, rate: rate, length: length}
		work := contender.AppWork{Begun: l.begun, Done: func(contender.Task) { l.done.Add(1) }, Fail: func(err error) { r.fail(err) }}
		if l.app, err = contender.OpenApp(r.ctx, name, r.dsn, work); err != nil {
			return fmt.Errorf("open %s: %w", name, err)
		}
		found, err = l.measure()
		return errors.Join(err, l.app.Close())
	})
	return found, err
}

func (l *load) begun(t contender.Task) {
	took := float64(time.Now().UnixNano()-t.Begun) / float64(time.Millisecond)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts = append(l.starts, took)
}

func (l *load) measure() (found Loaded, err error) {
	stop, err := l.app.Start(l.run.ctx)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := l.offer(loadWarmUp); err != nil {
		return found, err
	}
	if err := l.drain(); err != nil {
		return found, err
	}
	before := l.n.Load()
	l.mu.Lock()
	l.starts = nil
	l.mu.Unlock()
	usage, err := l.usage()
	if err != nil {
		return found, err
	}
	cost, began := l.run.meter(new(contender.Wire)), time.Now()
	if err := l.offer(l.length); err != nil {
		return found, err
	}
	found.Messages = int(l.n.Load() - before)
	found.Rate = float64(found.Messages) / time.Since(began).Seconds()
	if err := l.drain(); err != nil {
		return found, err
	}
	found.Cost = cost()
	after, err := l.usage()
	found.Commits = float64(after.Commits-usage.Commits) / float64(found.Messages)
	found.WAL = float64(after.WAL-usage.WAL) / float64(found.Messages)
	found.Starts = l.starts
	return found, errors.Join(err, l.check())
}

// usage is read once each connection has reported what it did, which PostgreSQL does a second
// later at the latest.
func (l *load) usage() (server.Usage, error) {
	if err := l.run.wait(1100 * time.Millisecond); err != nil {
		return server.Usage{}, err
	}
	return server.UsageOf(l.run.ctx, l.run.dsn)
}

// offer writes messages for a time, however slow the application is.
func (l *load) offer(length time.Duration) error {
	begin, first := time.Now(), l.n.Load()
	var producers sync.WaitGroup
	for range loadProducers {
		producers.Go(func() {
			for l.run.ctx.Err() == nil {
				n := l.n.Add(1) - 1
				due := begin.Add(time.Duration(n-first) * time.Second / time.Duration(l.rate))
				if due.Sub(begin) > length || time.Since(begin) > length {
					l.n.Add(-1)
					return
				}
				if l.run.wait(time.Until(due)) != nil {
					return
				}
				task := contender.Task{N: n, User: "u-12345678", Email: "someone@example.com", Begun: time.Now().UnixNano()}
				if err := l.app.Do(l.run.ctx, task); err != nil {
					l.run.fail(fmt.Errorf("produce: %w", err))
				}
			}
		})
	}
	producers.Wait()
	return context.Cause(l.run.ctx)
}

// drain waits until all is done, and what comes of it is written.
func (l *load) drain() error {
	for began := time.Now(); l.done.Load() < l.n.Load(); {
		if time.Since(began) > mostBehind {
			return fmt.Errorf("%d of %d messages are done %s after the last was written", l.done.Load(), l.n.Load(), mostBehind)
		}
		if err := l.run.wait(time.Millisecond); err != nil {
			return err
		}
	}
	return l.run.wait(loadRest)
}

// check fails unless each consumer that inserts a row has done so once.
func (l *load) check() error {
	want := 0
	for n := range l.n.Load() {
		if contender.KindOf(n).Transactional() {
			want++
		}
	}
	got, err := server.Count(l.run.ctx, l.run.dsn, contender.TaskEffects)
	if err == nil && (got != want || l.done.Load() != l.n.Load()) {
		err = fmt.Errorf("%d rows were inserted for %d messages, %d of %d are done", got, want, l.done.Load(), l.n.Load())
	}
	return err
}
