package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// shipping runs three steps, notes each call of their functions, and fails where it is told.
type shipping struct {
	calls []string
	fail  func(step string) error
}

type receipt struct {
	Number string
	N      int
}

func (s *shipping) step(ctx context.Context, name string) (receipt, error) {
	return outbox.Step(ctx, name, func(context.Context) (receipt, error) {
		s.calls = append(s.calls, name)
		if s.fail != nil {
			if err := s.fail(name); err != nil {
				return receipt{}, err
			}
		}
		return receipt{name + " <done>\n", len(s.calls)}, nil
	})
}

func (s *shipping) consume(ctx context.Context, _ order) error {
	for i, name := range []string{"reserve", "charge", "ship"} {
		r, err := s.step(ctx, name)
		if err != nil {
			return err
		}
		if r.Number != name+" <done>\n" || r.N < i+1 {
			return bus.Permanent(fmt.Errorf("result of %s: %+v", name, r))
		}
	}
	return nil
}

func (s *shipping) want(t *testing.T, what string, calls ...string) {
	t.Helper()
	if !slices.Equal(s.calls, calls) {
		t.Errorf("%s: got calls of the steps' functions %q, want %q", what, s.calls, calls)
	}
}

// Promise: steps
func TestStepsGoOnWhereTheyStopped(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		s := new(shipping)
		failed := false
		s.fail = func(step string) error {
			if step == "ship" && !failed {
				failed = true
				return errors.New("no lorry")
			}
			return nil
		}
		k := bustest.NewKit(t, db, bus.Consume("ship", s.consume))
		k.Produce(order{ID: "17"})
		k.CrashAfterStep("reserve")
		s.want(t, "after the crash", "reserve")
		if d := k.ProcessNext(); d.Outcome.Outcome != bus.Retried || !strings.Contains(d.Outcome.Error(), `outbox: step "ship": no lorry`) {
			t.Errorf("outcome: got %s, want a retry because of the step", &d.Outcome)
		}
		s.want(t, "after the failure", "reserve", "charge", "ship")
		k.Advance(time.Hour)
		if d := k.ProcessNext(); d.Outcome.Outcome != bus.Done {
			t.Errorf("outcome: got %s, want done", &d.Outcome)
		}
		s.want(t, "in the end", "reserve", "charge", "ship", "ship")
		empty(t, k, db)
	})
}

func TestSnoozeBetweenStepsIsADurableSleep(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var k *bustest.Kit
		var ran []string
		k = bustest.NewKit(t, db, bus.Consume("remind", func(ctx context.Context, _ order) error {
			at, err := outbox.Step(ctx, "when", func(context.Context) (time.Time, error) { return k.Now().Add(24 * time.Hour), nil })
			if err != nil {
				return err
			}
			if wait := at.Sub(k.Now()); wait > 0 {
				ran = append(ran, "sleep")
				return bus.Snooze(wait)
			}
			ran = append(ran, "remind")
			return nil
		}, bus.MaxAttempts(1)))
		k.Produce(order{ID: "1"})
		k.DrainUntilIdle()
		k.Advance(23 * time.Hour)
		k.DrainUntilIdle()
		k.Advance(time.Hour)
		k.DrainUntilIdle()
		if !slices.Equal(ran, []string{"sleep", "remind"}) {
			t.Errorf("got %q, want one sleep and one reminder", ran)
		}
	})
}

// TestStepsStayWithAPoisonedMessage: a requeue goes on from where it stopped.
func TestStepsStayWithAPoisonedMessage(t *testing.T) {
	t.Parallel()
	for _, keyed := range []bool{false, true} {
		testdb.Each(t, func(t *testing.T, db *bun.DB) {
			s := &shipping{fail: func(step string) error {
				if step == "ship" {
					return bus.Permanent(errors.New("no lorry"))
				}
				return nil
			}}
			options := []bus.ConsumerOption{}
			if keyed {
				options = append(options, bus.Ordered(bus.SkipPoisoned))
			}
			k := bustest.NewKit(t, db, bus.Consume("ship", s.consume, options...))
			k.Produce(order{ID: "1"}, outbox.OrderingKey("k"))
			k.DrainUntilIdle()
			s.want(t, "before it is poisoned", "reserve", "charge", "ship")
			s.fail = nil
			poisoned, _, err := k.Poison.List(k.Context(), db, poison.Filter{}, admin.Page{})
			if err != nil || len(poisoned) != 1 {
				t.Fatalf("poisoned: got %d, %v, want 1", len(poisoned), err)
			}
			m := testapp.Must[poison.Message](t)(k.Poison.Get(k.Context(), db, poisoned[0].ID))
			if len(m.Steps) != 2 || m.Steps[0].Name != "reserve" || m.Steps[1].Attempt != 1 || !m.Steps[1].StartedAt.Equal(k.Now()) {
				t.Errorf("steps of the poisoned message: got %+v, want two", m.Steps)
			}
			testapp.OK(t, testapp.Second(k.Poison.Requeue(k.Context(), db, poisoned[0].ID)))
			k.DrainUntilIdle()
			s.want(t, "after the requeue", "reserve", "charge", "ship", "ship")
			empty(t, k, db)
		})
	}
}

func TestALostLeaseStoresNoStep(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var second atomic.Int64
		a := testapp.New(t, db)
		var errs []error
		a = testapp.New(t, db, bus.Consume("c", func(ctx context.Context, _ order) error {
			if second.Add(1) > 1 {
				return nil
			}
			_, err := outbox.Step(ctx, "one", func(context.Context) (int, error) {
				a.Exec("DELETE FROM message_claims")
				return 1, nil
			})
			errs = append(errs, err)
			_, err = outbox.Step(ctx, "two", func(context.Context) (int, error) {
				t.Error("the function of a step was called after the lease was lost")
				return 2, nil
			})
			errs = append(errs, err)
			return err
		}))
		a.Produce(order{ID: "1"})
		testapp.OK(t, testapp.Second(newProcessor(a, testapp.Fast()).ProcessNext(t.Context())))
		if len(errs) != 2 || !errors.Is(errs[0], bus.ErrLeaseLost) || !errors.Is(errs[1], bus.ErrLeaseLost) {
			t.Errorf("errors of the steps: got %v, want bus.ErrLeaseLost twice", errs)
		}
		if n := a.Count("SELECT count(*) FROM consumer_messages WHERE steps IS NOT NULL"); n != 0 {
			t.Errorf("got %d messages with a step, want none", n)
		}
	})
}

// TestARunThatIsOverBeginsNoStep: a goroutine of it goes on with its context, and the claim lives on for another message.
func TestARunThatIsOverBeginsNoStep(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		other, began, refused := make(chan struct{}), make(chan struct{}), make(chan struct{})
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, o order) error {
			if o.ID == "other" {
				<-other
				return nil
			}
			_, err := outbox.Step(ctx, "one", func(context.Context) (int, error) { return 1, nil })
			after := context.WithoutCancel(ctx)
			go func() {
				for close(began); ; { // until the run is over
					_, err := outbox.Step(after, "two", func(context.Context) (int, error) { return 2, errors.New("again") })
					if errors.Is(err, bus.ErrLeaseLost) {
						close(refused)
						return
					}
				}
			}()
			<-began
			return bus.Discard(errors.Join(err, errors.New("over")))
		}, bus.Timeout(time.Minute)))
		a.Produce(order{ID: "other"})
		a.Produce(order{ID: "1"})
		r := a.Start(testapp.Fast())
		select {
		case <-refused:
		case <-time.After(20 * time.Second):
			t.Error("steps of a run that is over still begin")
		}
		close(other)
		r.MustStop()
	})
}

// TestAMessageThatIsGoneBeginsNoStep: it was deleted, replaced or consumed while its claim is live.
func TestAMessageThatIsGoneBeginsNoStep(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		for _, change := range []string{"DELETE FROM consumer_messages", "UPDATE consumer_messages SET attempts = 1"} {
			a := testapp.New(t, db)
			var got error
			a = testapp.New(t, db, bus.Consume("c", func(ctx context.Context, _ order) error {
				a.Exec(change)
				_, got = outbox.Step(ctx, "one", func(context.Context) (int, error) {
					t.Errorf("after %s: the function of the step was called", change)
					return 1, nil
				})
				return nil
			}))
			a.Produce(order{ID: "1"})
			testapp.OK(t, testapp.Second(newProcessor(a, testapp.Fast()).ProcessNext(t.Context())))
			if !errors.Is(got, bus.ErrLeaseLost) {
				t.Errorf("after %s: got %v, want bus.ErrLeaseLost", change, got)
			}
		}
	})
}

// TestAStepIsStoredPastTheTimeout: what it did has happened.
func TestAStepIsStoredPastTheTimeout(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		calls := 0
		k := bustest.NewKit(t, db, bus.Consume("slow", func(ctx context.Context, _ order) error {
			_, err := outbox.Step(ctx, "slow", func(ctx context.Context) (int, error) {
				if calls++; calls == 1 {
					<-ctx.Done()
				}
				return calls, nil
			})
			return errors.Join(err, ctx.Err())
		}, bus.Timeout(time.Second)))
		k.Produce(order{ID: "1"})
		if d := k.ProcessNext(); d.Outcome.Outcome != bus.Retried {
			t.Errorf("outcome: got %s, want a retry after the timeout", &d.Outcome)
		}
		k.Advance(time.Hour)
		k.DrainUntilIdle()
		if empty(t, k, db); calls != 1 {
			t.Errorf("got calls of the step's function %d, want 1", calls)
		}
	})
}

func TestWhatAStepRefuses(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	large := func(n int) func(context.Context) (string, error) {
		return func(context.Context) (string, error) { return strings.Repeat("x", n), nil }
	}
	one := func(context.Context) (int, error) { return 1, nil }
	cases := map[string]struct {
		run  func(ctx context.Context) error
		want string
	}{
		"a name twice": {func(ctx context.Context) error {
			_, err := outbox.Step(ctx, "a", one)
			return errors.Join(err, testapp.Second(outbox.Step(ctx, "a", one)))
		}, `outbox: step "a": the step has already begun in this attempt: each step of a message needs its own name`},
		"no name":        {func(ctx context.Context) error { return testapp.Second(outbox.Step(ctx, "", one)) }, `the name is empty`},
		"a large result": {func(ctx context.Context) error { return testapp.Second(outbox.Step(ctx, "a", large(64<<10))) }, "the result has 65538 bytes, at most 65536 are allowed"},
		"large results": {func(ctx context.Context) (err error) {
			for i := range 5 {
				err = errors.Join(err, testapp.Second(outbox.Step(ctx, fmt.Sprint(i), large(60<<10))))
			}
			return err
		}, "at most 262144 are allowed"},
		"many": {func(ctx context.Context) (err error) {
			for i := range 101 {
				err = errors.Join(err, testapp.Second(outbox.Step(ctx, fmt.Sprint(i), one)))
			}
			return err
		}, `outbox: step "100": too large: the message has 100 steps, at most 100 are allowed`},
	}
	for name, c := range cases {
		var got error
		k := bustest.NewKit(t, db, bus.Consume("c", func(ctx context.Context, _ order) error { got = c.run(ctx); return nil }))
		k.Produce(order{ID: "1"})
		k.DrainUntilIdle()
		if v := bus.OutcomeOf(got); strings.Contains(name, "large") && v.Outcome != bus.Condemned {
			t.Errorf("%s: outcome: got %s, want a permanent error", name, &v)
		}
		if got == nil || !strings.Contains(got.Error(), c.want) || strings.Count(got.Error(), "\n") > 0 {
			t.Errorf("%s: got %v, want one error with %q", name, got, c.want)
		}
	}
}

// TestAResultOfAnotherTypeIsAnError: its text does not quote the result.
func TestAResultOfAnotherTypeIsAnError(t *testing.T) {
	t.Parallel()
	attempt := bustest.Steps(t.Context())
	if _, err := outbox.Step(attempt(), "a", func(context.Context) (string, error) { return "secret", nil }); err != nil {
		t.Fatal(err)
	}
	_, err := outbox.Step(attempt(), "a", func(context.Context) (int, error) { return 0, nil })
	if err == nil || !strings.Contains(err.Error(), "does not decode into int") || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v, want an error that names the type and not the result", err)
	}
	if got, err := outbox.Step(attempt(), "a", func(context.Context) (string, error) { return "again", nil }); got != "secret" || err != nil {
		t.Errorf("in the next attempt: got %q, %v, want the stored result", got, err)
	}
	var none *receipt
	for range 2 {
		got, err := outbox.Step(attempt(), "none", func(context.Context) (*receipt, error) { return none, nil })
		if got != nil || err != nil {
			t.Errorf("a nil result: got %v, %v, want nil", got, err)
		}
	}
}

func TestConsumersWithoutSteps(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var errs []error
		step := func(ctx context.Context) error {
			errs = append(errs, testapp.Second(outbox.Step(ctx, "a", func(context.Context) (int, error) {
				t.Error("the function was called")
				return 1, nil
			})))
			return nil
		}
		k := bustest.NewKit(t, db,
			outbox.ConsumeTx("tx", func(ctx context.Context, _ bun.Tx, _ order) error { return step(ctx) }),
			bus.ConsumeBatch("batch", func(ctx context.Context, _ []order) error { return step(ctx) }, bus.BatchSize(2)))
		k.Produce(order{ID: "1"})
		k.DrainUntilIdle()
		testapp.OK(t, step(t.Context()))
		if len(errs) != 3 {
			t.Errorf("got %d calls, want 3", len(errs))
		}
		for _, err := range errs {
			if !errors.Is(err, outbox.ErrNoSteps) {
				t.Errorf("got %v, want outbox.ErrNoSteps", err)
			}
		}
	})
}

// empty fails the test unless each message was consumed.
func empty(t *testing.T, k *bustest.Kit, db *bun.DB) {
	t.Helper()
	pending, _, err := k.Admin.List(k.Context(), db, admin.Filter{}, admin.Page{})
	poisoned, _, poisonErr := k.Poison.List(k.Context(), db, poison.Filter{}, admin.Page{})
	if err := errors.Join(err, poisonErr); err != nil || len(pending)+len(poisoned) > 0 {
		t.Errorf("left: got %d pending and %d poisoned messages, %v, want none", len(pending), len(poisoned), err)
	}
}
