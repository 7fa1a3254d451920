package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// step is the nth message of a key.
type step struct {
	Customer string
	N        int
}

func (step) PayloadType() string { return "step" }

func (s step) OrderKey() string { return "customer:" + s.Customer }

// journal is a consumer of steps that notes what comes out of order, or runs beside another
// of its key.
type journal struct {
	mu      sync.Mutex
	running map[string]int
	done    map[string]int // the last of each key
	ran     []step
	wrong   []string
	work    func(ctx context.Context, s step) error // of each run; nil is nothing
}

func newJournal(work func(context.Context, step) error) *journal {
	return &journal{running: make(map[string]int), done: make(map[string]int), work: work}
}

func (j *journal) consume(ctx context.Context, s step) error {
	j.mu.Lock()
	if j.running[s.Customer]++; j.running[s.Customer] > 1 {
		j.wrong = append(j.wrong, fmt.Sprintf("%v runs beside another of its key", s))
	}
	if want := j.done[s.Customer] + 1; s.N != want {
		j.wrong = append(j.wrong, fmt.Sprintf("%v runs, want %d", s, want))
	}
	j.ran = append(j.ran, s)
	j.mu.Unlock()
	var err error
	if j.work != nil {
		err = j.work(ctx, s)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.running[s.Customer]--
	if err == nil {
		j.done[s.Customer] = s.N
	}
	return err
}

// check reports what was wrong, and keys that did not come to their end.
func (j *journal) check(t *testing.T, keys, each int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.wrong) > 0 {
		t.Errorf("got %d runs out of order, the first: %s", len(j.wrong), j.wrong[0])
	}
	for key, n := range j.done {
		if n != each {
			t.Errorf("key %q: got %d done, want %d", key, n, each)
		}
	}
	if len(j.done) != keys {
		t.Errorf("got %d keys, want %d", len(j.done), keys)
	}
}

// TestMessagesOfAKeyRunInOrder over three processors, with failures, retries and snoozes, in
// batches and one by one.
func TestMessagesOfAKeyRunInOrder(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		j := newJournal(func(context.Context, step) error {
			switch rand.IntN(20) {
			case 0:
				return errors.New("not this time")
			case 1:
				return bus.Snooze(5 * time.Millisecond)
			}
			return nil
		})
		a := testapp.New(t, db, bus.Consume("c", j.consume, bus.Ordered(bus.ParkKey), bus.AttemptDelay(5*time.Millisecond), bus.MaxAttempts(100)))
		const keys, each = 12, 40
		var processors []*testapp.Running
		for range 3 {
			processors = append(processors, a.Start(testapp.Fast()))
		}
		for n := 1; n <= each; n += 4 {
			var items []outbox.Item
			for k := range keys {
				for i := range 3 {
					items = append(items, outbox.Item{Payload: step{fmt.Sprint(k), n + i}})
				}
			}
			testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, items...))
			for k := range keys {
				a.Produce(step{fmt.Sprint(k), n + 3})
			}
		}
		testapp.Eventually(t, "all ran", a.Empty)
		for _, r := range processors {
			r.MustStop()
		}
		j.check(t, keys, each)
	})
}
