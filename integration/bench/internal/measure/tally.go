package measure

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/contender"
)

// tally counts runs of a handler, from many goroutines.
type tally struct {
	messages, runs int64 // runs in all, of messages with ids from 0 on
	handled, sum   atomic.Int64
	tenths         [10]atomic.Int64 // when each tenth of the runs was reached
	all            chan struct{}
}

// newTally expects every message to be handled by a number of consumers.
func newTally(messages, consumers int) *tally {
	return &tally{messages: int64(messages), runs: int64(messages * consumers), all: make(chan struct{})}
}

// handle is the handler of most measurements.
func (t *tally) handle(payload contender.Signup) {
	t.sum.Add(payload.UserID)
	n := t.handled.Add(1)
	if tenth := n * 10 / t.runs; tenth > (n-1)*10/t.runs && n <= t.runs {
		t.tenths[tenth-1].Store(time.Now().UnixNano())
	}
	if n == t.runs {
		close(t.all)
	}
}

// wait returns when all is handled.
func (t *tally) wait(ctx context.Context) error {
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d messages handled: %w", t.handled.Load(), t.runs, context.Cause(ctx))
	}
}

// check fails unless every message was handled exactly once by each consumer.
func (t *tally) check() error {
	handled, sum := t.handled.Load(), t.sum.Load()
	return checkRuns(t.messages, t.runs, handled, sum)
}

// checkRuns compares what was handled with messages whose ids begin at 0.
func checkRuns(messages, runs, handled, sum int64) error {
	want := messages * (messages - 1) / 2 * (runs / messages)
	if handled != runs || sum != want {
		return fmt.Errorf("handled %d messages with ids of sum %d, want %d and %d", handled, sum, runs, want)
	}
	return nil
}

// progress returns the rate within each tenth of the runs.
func (t *tally) progress(start time.Time) []float64 {
	rates := make([]float64, len(t.tenths))
	last := start.UnixNano()
	for i := range t.tenths {
		at := t.tenths[i].Load()
		if at > last {
			rates[i] = float64(t.runs) / 10 / (float64(at-last) / 1e9)
		}
		last = max(last, at)
	}
	return rates
}
