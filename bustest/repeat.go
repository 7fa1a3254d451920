package bustest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// repeat is a check after a consumer's run. It returns the error for the processor.
type repeat func(ctx context.Context, m *bus.Message, next bus.Handler, err error) error

// RequireIdempotent drains as [Kit.DrainUntilIdle] does, and runs every consumer that succeeds a
// second time at once, with the same message. The test fails if the second run fails or has an
// effect.
//
// An effect is any difference after the second run: in the stored messages, schedules and events, or
// in the result of state, which is called after each run and compared with reflect.DeepEqual. state
// may be nil. A transactional consumer cannot run twice: its first commit removes its message.
func (k *Kit) RequireIdempotent(state func() any) {
	k.t.Helper()
	k.check("RequireIdempotent", func(ctx context.Context, m *bus.Message, next bus.Handler, err error) error {
		if bus.OutcomeOf(err).Outcome != bus.Done {
			return err // it runs again anyway
		}
		before := k.read(ctx, state)
		k.compare(ctx, "second run", m, before, isolate.Guarded(ctx, m, next), state)
		return err
	})
}

// RequireRedeliverable drains as [Kit.DrainUntilIdle] does, but drops the first outcome of every
// message, as if the process had been lost between the consumer's return and the settlement. The
// clock moves on by the lease, another process recovers the message, and it is delivered again
// with one crash counted. The test fails if the redelivery fails or has an effect; state is that
// of [Kit.RequireIdempotent]. A transactional consumer is not affected: its message is removed by
// the first commit.
func (k *Kit) RequireRedeliverable(state func() any) {
	k.t.Helper()
	first := map[delivery]effects{}
	k.check("RequireRedeliverable", func(ctx context.Context, m *bus.Message, _ bus.Handler, err error) error {
		key := delivery{m.ID, m.Consumer}
		if before, lost := first[key]; lost {
			k.lost[key] = false
			if m.CrashCount > 0 { // not a retry of the redelivery
				k.compare(ctx, "redelivery", m, before, err, state)
			}
			return err
		}
		if bus.OutcomeOf(err).Outcome != bus.Done {
			return err
		}
		first[key], k.lost[key] = k.read(ctx, state), true
		k.loseClaims(ctx)
		return err
	})
}

// loseClaims recovers the current claim as that of a lost process, so that the outcomes about to
// be written do not count. This affects a whole batch.
func (k *Kit) loseClaims(ctx context.Context) {
	if k.recovered {
		return
	}
	k.recovered = true
	k.turnTo(k.Now().Add(k.lease + time.Millisecond))
	found, err := k.store.Claims.Recover(ctx, k.db, math.MaxInt16)
	if err != nil || found.Claims == 0 {
		k.problem = fmt.Sprintf("recover the message of a lost process: got %d claims, %v, want one", found.Claims, err)
	}
}

// CrashAfterStep runs the oldest due message as [Kit.ProcessNext] does, and simulates a crash of the
// process right after outbox.Step has stored the result of the named step: the consumer ends there, and its
// outcome does not count. The clock moves on by the lease, and another process recovers the message, with one crash
// counted. The next ProcessNext resumes it. The test fails if the message does not reach the step.
func (k *Kit) CrashAfterStep(step string, consumers ...string) {
	k.t.Helper()
	crashed := false
	k.crash = func(stored string) {
		if stored == step {
			crashed = true
			runtime.Goexit()
		}
	}
	defer func() { k.crash = nil }()
	k.repeat = func(ctx context.Context, _ *bus.Message, _ bus.Handler, err error) error {
		if crashed {
			k.loseClaims(ctx)
		}
		return err
	}
	defer func() { k.repeat = nil }()
	if k.ProcessNext(consumers...); !crashed {
		k.t.Fatalf("bustest: CrashAfterStep(%q): the message ran without storing that step", step)
	}
}

// check drains with a check after each run.
func (k *Kit) check(operation string, r repeat) {
	k.t.Helper()
	k.repeat, k.lost = r, map[delivery]bool{}
	defer func() { k.repeat, k.lost = nil, nil }()
	k.drain(operation)
}

// delivery is a message for one consumer.
type delivery struct {
	id       uuid.UUID
	consumer string
}

// effects is the state after a run.
type effects struct {
	state    any
	messages []pending
	others   []string // schedules and events
}

// pending is a pending or running message.
type pending struct {
	delivery
	text string
}

// stored lists what is stored, except for messages that are redelivered: messages of one batch are
// redelivered one after the other.
func (e effects) stored(but map[delivery]bool) []string {
	all := slices.Clone(e.others)
	for _, m := range e.messages {
		if _, again := but[m.delivery]; !again {
			all = append(all, m.text)
		}
	}
	slices.Sort(all)
	return all
}

func (k *Kit) read(ctx context.Context, state func() any) (e effects) {
	if state != nil {
		e.state = state()
	}
	messages, err := k.store.Pending.Messages(ctx, k.db)
	if err != nil {
		k.problem = fmt.Sprintf("read messages: %v", err)
	}
	for _, m := range messages {
		e.messages = append(e.messages,
			pending{delivery{m.MessageID, m.ConsumerType}, fmt.Sprintf("message %s for %s: %s", m.PayloadType, m.ConsumerType, m.Payload)})
	}
	schedules, _, err := k.all().scheduled()
	if err != nil {
		k.problem = fmt.Sprintf("read schedules: %v", err)
	}
	for _, s := range schedules {
		e.others = append(e.others, fmt.Sprintf("schedule %q of %s, %s %s: %s", s.Name, s.PayloadType, s.Expression, s.Zone, s.Payload))
	}
	if k.store.Events() == nil {
		numbered, headErr := k.store.EventLog.Head(ctx, k.db)
		others, err := k.store.Readers.Unnumbered(ctx, k.db, store.MostCounted)
		if err := errors.Join(headErr, err); err != nil {
			k.problem = fmt.Sprintf("count events: %v", err)
		}
		e.others = append(e.others, fmt.Sprintf("event log: %d events", numbered+others))
	}
	return e
}

// compare records a difference that a repeated run made.
func (k *Kit) compare(ctx context.Context, what string, m *bus.Message, before effects, err error, state func() any) {
	run := fmt.Sprintf("consumer %q, %s of message %s (%s)", m.Consumer, what, m.ID, m.PayloadType)
	v := bus.OutcomeOf(err)
	switch v.Outcome {
	case bus.Done, bus.Discarded, bus.Released: // released: the message is gone
	default:
		k.problem = fmt.Sprintf("%s: got %s, %s, want it done again", run, v.Outcome, &v)
		return
	}
	after := k.read(ctx, state)
	was, is := before.stored(k.lost), after.stored(k.lost)
	switch {
	case k.problem != "":
	case !reflect.DeepEqual(before.state, after.state):
		k.problem = fmt.Sprintf("%s: got the state %+v, want it unchanged: %+v", run, after.state, before.state)
	case !slices.Equal(was, is):
		k.problem = fmt.Sprintf(
			"%s: got stored messages, schedules or events changed, want none: %s", run, strings.Join(difference(was, is), "; "),
		)
	}
}

// difference lists what is in only one of two sorted lists.
func difference(before, after []string) (out []string) {
	for len(before) > 0 || len(after) > 0 {
		switch {
		case len(after) == 0 || len(before) > 0 && before[0] < after[0]:
			out, before = append(out, "gone: "+before[0]), before[1:]
		case len(before) == 0 || after[0] < before[0]:
			out, after = append(out, "new: "+after[0]), after[1:]
		default:
			before, after = before[1:], after[1:]
		}
	}
	return out
}
