package bustest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/steps"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Delivery is one run of a message.
type Delivery struct {
	// Message is the message as the consumer got it.
	Message bus.Message
	// Outcome is the chain's outcome, for instance bus.Retried with the delay until the next run.
	// A successful run has the outcome bus.Done and no error.
	Outcome bus.OutcomeError
}

// ProcessNext runs the oldest due message and writes its outcome: done, due again later, or
// poisoned. Due schedules fire first. If nothing is due, the test fails with a list of pending
// messages. A batch consumer also gets its other due messages, and the first of the batch is
// returned; [Kit.DrainUntilIdle] returns all.
//
// A consumer's error does not fail the test: check the returned Delivery. A consumer that calls
// t.FailNow does, although it runs on its own goroutine.
//
// With names of consumers, it runs the oldest due message of those consumers.
func (k *Kit) ProcessNext(consumers ...string) Delivery {
	k.t.Helper()
	operation := "ProcessNext"
	if len(consumers) > 0 {
		operation = fmt.Sprintf("ProcessNext(%q)", consumers)
	}
	k.fire(operation)
	ran := k.step(operation, consumers...)
	if len(ran) == 0 {
		k.t.Fatalf("bustest: %s: no message is due, want one; waiting: %s", operation, k.waiting(operation))
	}
	return ran[0]
}

// DrainUntilIdle runs messages until none is due, including those that consumers produce
// meanwhile, and returns the runs in order. Due schedules fire. Messages that are due later stay;
// use [Kit.Advance]. The test fails if more than KitConfig.Limit messages ran.
func (k *Kit) DrainUntilIdle() []Delivery {
	k.t.Helper()
	return k.drain("DrainUntilIdle")
}

func (k *Kit) drain(operation string) (deliveries []Delivery) {
	k.t.Helper()
	for {
		if !slices.Contains(slices.Collect(maps.Values(k.lost)), true) { // redeliver first, so that only its own effects show
			k.fire(operation)
		}
		ran := k.step(operation)
		if len(ran) == 0 {
			return deliveries
		}
		if deliveries = append(deliveries, ran...); len(deliveries) > k.limit {
			k.t.Fatalf("bustest: %s: got %d messages run, want at most %d (KitConfig.Limit); do consumers feed each other without end? runs: %s",
				operation, len(deliveries), k.limit, runs(deliveries))
		}
	}
}

// runs counts deliveries by consumer.
func runs(deliveries []Delivery) string {
	counts := map[string]int{}
	for _, d := range deliveries {
		counts[d.Message.Consumer]++
	}
	var parts []string
	for _, consumer := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", consumer, counts[consumer]))
	}
	return strings.Join(parts, ", ")
}

// Advance moves the kit's clock forward. Schedules that become due fire at their time, one after
// the other, as with a running processor. Messages do not run. The test fails if d is negative, or
// if more than KitConfig.Limit schedules fire.
func (k *Kit) Advance(d time.Duration) {
	k.t.Helper()
	operation := fmt.Sprintf("Advance(%s)", d)
	if d < 0 {
		k.t.Fatalf("bustest: %s: 0 or more is allowed", operation)
	}
	end := k.Now().Add(d)
	for fired := 0; ; {
		wait, ok := k.nextSchedule(operation)
		at := k.Now().Add(max(wait, 0))
		if !ok || at.After(end) {
			break
		}
		k.turnTo(at)
		n := k.fire(operation)
		if fired += n; fired > k.limit {
			k.t.Fatalf("bustest: %s: got %d schedules fired by %s, want at most %d (KitConfig.Limit)", operation, fired, at, k.limit)
		}
		if n == 0 && wait <= 0 {
			k.t.Fatalf("bustest: %s: a schedule that is due does not fire: is it locked by an open transaction?", operation)
		}
	}
	k.turnTo(end)
}

func (k *Kit) nextSchedule(operation string) (time.Duration, bool) {
	k.t.Helper()
	payloadTypes := access.AllPayloadTypes(k.Registry)
	if len(payloadTypes) == 0 {
		return 0, false
	}
	wait, ok, err := k.store.Schedules.Next(k.Context(), k.db, payloadTypes, store.ScheduleFilter{})
	if err != nil {
		k.t.Fatalf("bustest: %s: look for schedules: %v", operation, err)
	}
	return wait, ok
}

// fire fires the due schedules and returns how many there were.
func (k *Kit) fire(operation string) int {
	k.t.Helper()
	n, err := k.schedules.FireDue(k.Context())
	if err != nil {
		k.t.Fatalf("bustest: %s: %v", operation, err)
	}
	return n
}

// step runs one due message or batch. The result is in the order in which the messages were due.
func (k *Kit) step(operation string, consumers ...string) []Delivery {
	k.t.Helper()
	k.ran, k.recovered, k.problem = nil, false, ""
	ran, err := k.processor.ProcessNext(k.Context(), consumers...)
	switch {
	case err != nil:
		k.t.Fatalf("bustest: %s: %v", operation, err)
	case k.problem != "":
		k.t.Fatalf("bustest: %s: %s", operation, k.problem)
	case ran && len(k.ran) == 0:
		k.t.Fatalf("bustest: %s: a message was run, but not through the chain", operation)
	case k.t.Failed() && slices.ContainsFunc(k.ran, func(d Delivery) bool { return errors.Is(d.Outcome.Err, isolate.ErrGoexit) }):
		k.t.FailNow() // the consumer could only end its own goroutine
	}
	slices.SortFunc(k.ran, func(a, b Delivery) int {
		return cmp.Or(a.Message.AvailableAt.Compare(b.Message.AvailableAt), bytes.Compare(a.Message.ID[:], b.Message.ID[:]))
	})
	return k.ran
}

// observe is the outermost layer of the consume chain: it records deliveries and outcomes.
// Messages of a batch, and the checks after each, are handled one at a time.
func (k *Kit) observe(next bus.Handler) bus.Handler {
	return func(ctx context.Context, m *bus.Message) (err error) {
		if k.steady {
			m.Config = withoutJitter(m.Config)
		}
		if k.crash != nil {
			ctx = steps.WithStored(ctx, k.crash)
		}
		err = isolate.Guarded(ctx, m, next) // as the processor would see it
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.repeat != nil {
			err = k.repeat(ctx, m, next, err)
		}
		d := Delivery{Message: *m, Outcome: bus.OutcomeOf(err)}
		d.Message.Payload, d.Message.Headers = bytes.Clone(m.Payload), maps.Clone(m.Headers)
		k.ran = append(k.ran, d)
		if _, again := k.delivered[m.ID]; !again {
			k.delivered[m.ID] = d.Message
		}
		return err
	}
}

// withoutJitter sets a deterministic backoff for a consumer without its own.
func withoutJitter(config *bus.ConsumerConfig) *bus.ConsumerConfig {
	if config == nil || config.Backoff != nil {
		return config
	}
	steady := *config
	steady.Backoff = func(attempt int) time.Duration {
		wait := min(config.AttemptDelay, limits.Backoff)
		for i := 1; i < attempt && wait > 0 && wait < limits.Backoff; i++ {
			wait = min(2*wait, limits.Backoff)
		}
		return wait
	}
	return &steady
}

// waiting describes what is pending, for failure messages.
func (k *Kit) waiting(operation string) string {
	k.t.Helper()
	rows, err := k.store.Pending.Messages(k.Context(), k.db)
	if err != nil {
		k.t.Fatalf("bustest: %s: read messages: %v", operation, err)
	}
	var parts []string
	for _, row := range rows {
		due := "now"
		if wait := row.AvailableAfter.Sub(k.Now()); wait > 0 {
			due = "in " + wait.String()
		} else if e, err := k.Admin.Explain(k.Context(), k.db, row.ID); err == nil && holdsBack(e.Reason) {
			due += ", but " + strings.ReplaceAll(string(e.Reason), "_", " ") + " (" + e.Text + ")"
		}
		parts = append(parts, fmt.Sprintf("%s for %s, due %s, failed %d times", row.PayloadType, row.ConsumerType, due, row.Attempts))
	}
	return listed(parts)
}

// holdsBack reports whether a due message does not run for that reason in the test.
func holdsBack(reason admin.State) bool {
	return !slices.Contains([]admin.State{admin.Ready, admin.Leased, admin.Delayed, admin.NoLiveProcess, admin.Saturated}, reason)
}
