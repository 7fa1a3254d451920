package engine

// An internal test: which slots a process holds and owes at a moment is a matter of timing in a whole one.

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// newLimitedDispatcher makes a dispatcher whose only consumer has a limit, of which this process runs a call in each of
// its slots.
func newLimitedDispatcher(t *testing.T, now time.Time, slots int) (*dispatcher, *limiter) {
	t.Helper()
	config := ProcessorConfig{}.withDefaults(true, 0)
	registered := bus.Consume("c", func(context.Context, testPayload) error { return nil }, bus.GlobalConcurrency(slots))
	settings, err := config.settings(registered)
	if err != nil {
		t.Fatal(err)
	}
	d := newDispatcher(config, []*consumer{{Consumer: registered, settings: settings, group: 1}})
	l := d.limiters.all[0]
	for n := range slots {
		l.slots[n+1] = now.Add(time.Minute)
	}
	l.running = slots
	return d, l
}

// TestAProcessThatLosesSlotsAsksForOthers although it owed some of them. Nothing is left to be given.
func TestAProcessThatLosesSlotsAsksForOthers(t *testing.T) {
	t.Parallel()
	for name, kept := range map[string][]store.Slot{"all lost": nil, "one kept": {{Name: "c", N: 1}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			d, l := newLimitedDispatcher(t, now, 4)
			d.findDue(0)
			d.limiters.share([]string{l.name})
			for i := range kept {
				kept[i].Name = l.name
			}
			d.limiters.renewedSlots(d.limiters.heldSlots(), kept, kept, now.Add(time.Minute))
			l.running = 0 // they were cancelled
			asked := false
			for range 10 {
				now = now.Add(slotsShared)
				needs, _ := d.limiters.slotNeeds(now)
				for _, need := range needs {
					asked = asked || need.more > 0
				}
			}
			if !asked {
				t.Errorf("slots asked for: got none, want some (%d held, %d owed)", len(l.slots), l.owed)
			}
		})
	}
}

// TestARunEndsWithoutTheSlotOfACallThatHangs: the call still counts as running, and its slot is lost.
func TestARunEndsWithoutTheSlotOfACallThatHangs(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d, l := newLimitedDispatcher(t, now, 2)
	kept := []store.Slot{{Name: l.name, N: 2}}
	d.limiters.renewedSlots(d.limiters.heldSlots(), kept, kept, now.Add(time.Minute))
	if out := d.limiters.takeOut(l); len(out) > 0 {
		t.Errorf("slots to return: got %v, want none: two calls run and one slot is held", out)
	}
}

// TestSlotsEndByTheWallClock, too: while a virtual machine is suspended, the monotonic clock stops.
func TestSlotsEndByTheWallClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d, l := newLimitedDispatcher(t, now, 1)
	for name, test := range map[string]struct {
		now  time.Time
		want int
	}{
		"both":                  {now, 1},
		"two minutes later":     {wallMoved(now, 2*time.Minute), 0},
		"the clock is ahead":    {wallMoved(now.Add(2*time.Minute), -time.Hour), 0},
		"the clock is set back": {wallMoved(now, -time.Hour), 1},
	} {
		if got := l.valid(test.now, d.config.LeaseDuration); got != test.want {
			t.Errorf("%s: got %d slots, want %d", name, got, test.want)
		}
	}
}

// TestAllOfAGroupAreCancelledWithoutSlots: its messages may be of several claims.
func TestAllOfAGroupAreCancelledWithoutSlots(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d, l := newLimitedDispatcher(t, now, 1)
	clear(l.slots)
	ledger, w := newLedger(10, new(atomic.Int64)), new(worker)
	var all []*task
	for id := range int64(3) {
		one := taskOf(d.catalog.consumers[0])
		one.lease = ledger.open(t.Context(), id, 1, now.Add(time.Hour))
		all = append(all, &one)
	}
	all[0].others = all[1:]
	w.current.Store(all[0])
	k := &leaseKeeper{
		ledger: ledger, limiters: &d.limiters, workers: &workerPool{all: []*worker{w}}, recorder: &recorder{dispatcher: d},
		warnings: &warnings{unrenewed: rateLimitedLog{logger: slog.New(slog.DiscardHandler)}},
	}
	k.cancelWithoutSlots(now)
	for i, one := range all {
		if cause := context.Cause(one.lease.ctx); cause != bus.ErrLeaseLost {
			t.Errorf("message %d of the group: got %v, want %v", i+1, cause, bus.ErrLeaseLost)
		}
	}
}
