package engine

// An internal test: what forbids a hand-off is many conditions, and a message that is claimed instead
// runs all the same.

import (
	"fmt"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// newAdmitting makes a dispatcher that admits messages of the consumers c and other.
func newAdmitting(t *testing.T) *dispatcher {
	t.Helper()
	d := newTestDispatcher(t, ProcessorConfig{Concurrency: 8}, "c", "other")
	d.quarantine.begin(time.Minute, time.Now())
	d.look(store.Poll{Now: time.Now()})
	return d
}

func admits(d *dispatcher, n int) (admitted int) {
	var messages []handoff.Message
	for i := range n {
		messages = append(messages, handoff.Message{ID: int64(i + 1), ConsumerType: "c", Payload: "{}"})
	}
	ok, consumers, rest := d.admit(messages)
	if len(ok)+len(rest) != n || len(ok) != len(consumers) {
		return -1
	}
	d.arrived(ok, consumers)
	return len(ok)
}

func TestAdmissionLeavesToClaimsWhatTheyDecide(t *testing.T) {
	t.Parallel()
	for name, forbid := range map[string]func(d *dispatcher, c *consumer){
		"a limit": func(_ *dispatcher, c *consumer) {
			c.limiter = &limiter{slots: map[int]time.Time{1: time.Now().Add(time.Hour), 2: time.Now().Add(time.Hour)}}
		},
		"a rate":           func(_ *dispatcher, c *consumer) { c.rate = new(store.Rate) },
		"keys":             func(_ *dispatcher, c *consumer) { c.lanes = []*lanes{{}} },
		"an order":         func(_ *dispatcher, c *consumer) { bus.Ordered(bus.BlockKey)(&c.settings) },
		"priorities":       func(_ *dispatcher, c *consumer) { c.settings.Aging = time.Second },
		"failed claims":    func(_ *dispatcher, c *consumer) { c.notBefore = time.Now().Add(time.Minute) },
		"a crashed one":    func(_ *dispatcher, c *consumer) { c.suspects = crashedOnce },
		"others crashed":   func(d *dispatcher, _ *consumer) { d.quarantine.waiting = true },
		"a solo run":       func(d *dispatcher, _ *consumer) { d.quarantine.soloRuns = 1 },
		"no look yet":      func(d *dispatcher, _ *consumer) { d.quarantine.looked = time.Time{} },
		"an abandoned one": func(d *dispatcher, _ *consumer) { d.capacity.abandoned = []string{"other"} },
		"a backlog":        func(_ *dispatcher, c *consumer) { c.active, c.clear = true, time.Now().Add(-time.Second) },
		"a backlog of before the first look": func(d *dispatcher, _ *consumer) {
			d.quarantine.looked = time.Time{}
			d.activate("test") // a commit is announced first
			d.look(store.Poll{Now: time.Now(), Due: []int{0}, First: []store.Position{{At: time.Now().Add(-time.Second), ID: 1}}})
		},
		"large messages":  func(d *dispatcher, _ *consumer) { d.capacity.held = maxHeldBytes },
		"busy workers":    func(d *dispatcher, _ *consumer) { d.capacity.running = 8 },
		"queued ones":     func(d *dispatcher, _ *consumer) { d.capacity.queued = 8 },
		"its concurrency": func(_ *dispatcher, c *consumer) { c.settings.Concurrency, c.running = 1, 1 },
		"a stop":          func(d *dispatcher, _ *consumer) { d.close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newAdmitting(t)
			if got := admits(d, 1); got != 1 {
				t.Fatalf("admitted before: got %d, want 1", got)
			}
			forbid(d, d.catalog.byName["c"])
			if got := admits(d, 1); got != 0 {
				t.Errorf("admitted: got %d, want none", got)
			}
		})
	}
}

// TestAdmissionKeepsRoom: for as many as may start at once, and as often as it is returned.
func TestAdmissionKeepsRoom(t *testing.T) {
	t.Parallel()
	d := newAdmitting(t)
	for range 3 {
		if got := admits(d, 20); got != 7 { // one worker is for the other consumer
			t.Fatalf("admitted of 20: got %d, want 7 of 8 workers", got)
		}
	}
	if c := d.catalog.byName["c"]; c.arriving != 0 || d.capacity.arriving != 0 || d.capacity.held != 0 {
		t.Errorf("kept after all: got %s, want none", fmt.Sprint(c.arriving, d.capacity.arriving, d.capacity.held))
	}
	d.catalog.byName["c"].active, d.catalog.byName["c"].clear = true, time.Now() // a message that was just announced
	if got := admits(d, 1); got != 1 {
		t.Errorf("admitted beside a message that waits since just now: got %d, want 1", got)
	}
}
