package outbox_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// untilStopped is a consumer's function that ends with its context.
func untilStopped(running *atomic.Int64) func(context.Context, order) error {
	return func(ctx context.Context, o order) error {
		running.Add(1)
		defer running.Add(-1)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Minute):
			return errors.New("nobody has stopped it")
		}
	}
}

func TestARunIsStoppedFromOutside(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var running atomic.Int64
		a := testapp.New(t, db, bus.Consume("c", untilStopped(&running), bus.Timeout(2*time.Minute), bus.Concurrency(2)))
		a.ProduceMany(3)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "two run", func() bool { return running.Load() == 2 })
		client := a.Admin()
		for left := 3; left > 0; left-- { // two that run, and one that waits or runs by then
			id := a.Pending()[0].ID
			stopped, err := client.Stop(a.Context(), db, id)
			if err != nil || stopped != admin.StopCancelled {
				t.Errorf("Stop: got %q, %v, want %q", stopped, err, admin.StopCancelled)
			}
			testapp.Eventually(t, "it is gone", func() bool { return len(a.Pending()) == left-1 })
		}
		if _, err := client.Stop(a.Context(), db, 1<<40); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("Stop of what is not there: got %v, want %v", err, admin.ErrNotFound)
		}
		r.MustStop()
		if len(a.Poisoned()) > 0 || a.Count("SELECT count(*) FROM message_stops WHERE outcome IS NULL") != 0 {
			t.Errorf("got %d poisoned, want none, and no request without an answer", len(a.Poisoned()))
		}
	})
}

// TestTwoOperatorsStopARun: each learns that it was cancelled.
func TestTwoOperatorsStopARun(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var running atomic.Int64
		a := testapp.New(t, db, bus.Consume("c", untilStopped(&running), bus.Timeout(2*time.Minute)))
		a.Start(testapp.Fast())
		client, stopped := a.Admin(), make(chan admin.StopResult)
		for round := int64(1); round <= 10; round++ {
			a.Produce(order{ID: "1"})
			testapp.Eventually(t, "it runs", func() bool { return running.Load() == 1 })
			id := a.Pending()[0].ID
			for range 2 {
				go func() {
					result, err := client.Stop(a.Context(), db, id)
					if errors.Is(err, admin.ErrNotFound) { // it asked after the other was answered
						result, err = admin.StopCancelled, nil
					}
					if err != nil {
						t.Errorf("Stop: %v", err)
					}
					stopped <- result
				}()
			}
			for range 2 {
				if result := <-stopped; result != admin.StopCancelled {
					t.Errorf("Stop in round %d: got %q, want %q", round, result, admin.StopCancelled)
				}
			}
		}
	})
}

// TestAHandlerThatIgnoresAStopIsTooLate to be stopped, and whoever asks need not wait for ever.
func TestAHandlerThatIgnoresAStopIsTooLate(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	release, started := make(chan struct{}), make(chan struct{})
	a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error {
		close(started)
		<-release
		return nil
	}))
	a.Produce(order{ID: "1"})
	r := a.Start(testapp.Fast())
	<-started
	id := a.Pending()[0].ID
	impatient, cancel := context.WithTimeout(a.Context(), 300*time.Millisecond)
	defer cancel()
	if stopped, err := a.Admin().Stop(impatient, db, id); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop: got %q, %v, want the end of its time", stopped, err)
	}
	a.Exec("DELETE FROM message_stops")
	answered := make(chan admin.StopResult)
	go func() {
		stopped, err := a.Admin().Stop(a.Context(), db, id)
		if err != nil {
			t.Errorf("Stop: %v", err)
		}
		answered <- stopped
	}()
	testapp.Eventually(t, "it is asked", func() bool { return a.Count("SELECT count(*) FROM message_stops") == 1 })
	close(release)
	if stopped := <-answered; stopped != admin.StopTooLate {
		t.Errorf("Stop: got %q, want %q", stopped, admin.StopTooLate)
	}
	r.MustStop()
}

// TestStoppingOneOfABatch gives the others back, and of a group it stops the one alone.
func TestStoppingOneOfABatch(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var first atomic.Bool
		started := make(chan []string, 10)
		a := testapp.New(t, db, bus.ConsumeBatch("c", func(ctx context.Context, orders []order) error {
			if len(orders) < 2 || first.Swap(true) { // a busy machine may begin with one
				return nil
			}
			started <- ids(orders)
			<-ctx.Done()
			return ctx.Err()
		}, bus.Timeout(2*time.Minute), bus.MaxAttempts(1)))
		a.ProduceMany(5)
		r := a.Start(alone())
		id := int64(a.Count("SELECT id FROM consumer_messages WHERE payload LIKE ?", `%"id":"`+(<-started)[0]+`"%`))
		if stopped, err := a.Admin().Stop(a.Context(), db, id); err != nil || stopped != admin.StopCancelled {
			t.Errorf("Stop: got %q, %v, want %q", stopped, err, admin.StopCancelled)
		}
		testapp.Eventually(t, "the others are done", a.Empty)
		r.MustStop()
		if len(a.Poisoned()) > 0 {
			t.Errorf("got %+v poisoned, want the others run again without an attempt counted", a.Poisoned())
		}
	})
}

func TestATransactionalRunIsStopped(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		started := make(chan struct{})
		a := withEffects(testapp.New(t, db, outbox.ConsumeTx("c", func(ctx context.Context, tx bun.Tx, o order) error {
			if err := addEffect(ctx, tx, o); err != nil {
				return err
			}
			close(started)
			<-ctx.Done()
			return context.Cause(ctx)
		}, bus.Timeout(8*time.Second))))
		a.Produce(order{ID: "1"})
		id := a.Pending()[0].ID
		r := a.Start(testapp.Fast())
		<-started
		if db.Dialect().Name().String() == "sqlite" { // the consumer has the only write lock
			r.MustStop()
			return
		}
		if stopped, err := a.Admin().Stop(a.Context(), db, id); err != nil || stopped != admin.StopCancelled {
			t.Errorf("Stop: got %q, %v, want %q", stopped, err, admin.StopCancelled)
		}
		testapp.Eventually(t, "it is gone", a.Empty)
		r.MustStop()
		if n := len(effectsOf(a)); n != 0 {
			t.Errorf("got %d effects, want them rolled back", n)
		}
	})
}

// TestStoppingTheFirstOfABatchBeforeItsCall discards that one, and no other.
func TestStoppingTheFirstOfABatchBeforeItsCall(t *testing.T) {
	t.Parallel()
	a := testapp.New(t, testdb.Postgres(t), bus.ConsumeBatch("c", func(context.Context, []order) error { return nil }))
	a.ProduceMany(5)
	first := a.Pending()[0]
	var asked sync.Once
	ready, turn := make(chan struct{}), make(chan struct{})
	var sent queries
	config := alone()
	config.Middleware = []bus.Middleware{func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			asked.Do(func() {
				defer close(ready)
				a.Exec("INSERT INTO message_stops (message_id, owner, asked_at) SELECT ?, owner, claimed_at FROM message_claims", first.ID)
				const look = `SELECT message_id FROM "message_stops"`
				looks := sent.count(look)
				testapp.Eventually(t, "a look has found it, and is over", func() bool { return sent.count(look) >= looks+2 })
			})
			<-ready
			if m.ID.String() == first.MessageID {
				close(turn)
			}
			<-turn
			err := next(ctx, m)
			if stopped := errors.Is(err, bus.ErrCancelled); stopped != (m.ID.String() == first.MessageID) {
				t.Errorf("message %s: got %v, want the first cancelled, and no other", m.ID, err)
			}
			return err
		}
	}}
	b := *a
	b.DB = a.DB.WithQueryHook(sent.hook())
	r := b.Start(config)
	testapp.Eventually(t, "nothing waits", a.Empty)
	r.MustStop()
}

// TestARequestToStopWhatIsOverIsForgotten: a message leaves its group at once, while the others run on, and is asked to stop
// then. The process does not look for it for ever.
func TestARequestToStopWhatIsOverIsForgotten(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var looks atomic.Int64
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) {
			if strings.Contains(query, "message_stops") && strings.Contains(query, "outcome IS NULL") {
				looks.Add(1)
			}
		}))
		running, proceed := make(chan struct{}), make(chan struct{})
		var once sync.Once
		a := testapp.New(t, hooked, outbox.ConsumeTx("c", func(_ context.Context, _ bun.Tx, o order) error {
			if o.ID == "slow" {
				once.Do(func() { close(running) })
				<-proceed
			}
			return nil
		}, outbox.GroupCommit(10), bus.Timeout(8*time.Second)))
		items := []outbox.Item{{Payload: order{ID: "early"}}, {Payload: order{ID: "slow"}}, {Payload: order{ID: "slow"}}}
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), a.DB, items...))
		early := a.Pending()[0].ID
		config := testapp.Fast()
		config.PollInterval, config.TxConcurrency = time.Second, 1
		config.Middleware = middleware.Default(middleware.Options{Middleware: []bus.Middleware{func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				if !strings.Contains(string(m.Payload), "early") {
					return next(ctx, m)
				}
				<-running // the others have begun
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 300*time.Millisecond)
				defer cancel()
				_, _ = a.Admin().Stop(ctx, db, early) // nobody answers so soon
				return bus.Discard(errAway)
			}
		}}})
		r := a.Start(config)
		<-running
		<-time.After(2 * time.Second) // a poll has seen the request
		close(proceed)
		testapp.Eventually(t, "all are gone", a.Empty)
		<-time.After(time.Second)
		before, since := looks.Load(), time.Now()
		<-time.After(2 * time.Second)
		if got := looks.Load() - before; got > 1+int64(time.Since(since)/time.Second) {
			t.Errorf("nothing waits or runs: got %d looks for requests in %s, want one a second at most", got, time.Since(since))
		}
		r.MustStop()
	})
}

// TestAStopIsAnsweredAsTheMessageGoes: before each statement of the process, one snapshot shows both, or neither.
func TestAStopIsAnsweredAsTheMessageGoes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var running, torn atomic.Int64
		watched := testapp.New(t, db)
		a := testapp.New(t, db.WithQueryHook(testapp.QueryHook(func(context.Context, string) {
			torn.Add(int64(watched.Count("SELECT count(*) FROM message_stops s WHERE (s.outcome IS NULL) <> " +
				"(EXISTS (SELECT 1 FROM consumer_messages m WHERE m.id = s.message_id))")))
		})), bus.Consume("c", untilStopped(&running), bus.Timeout(2*time.Minute)))
		a.ProduceMany(3)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all run", func() bool { return running.Load() == 3 })
		watched.Exec("INSERT INTO message_stops (message_id, owner, asked_at) SELECT m.id, c.owner, c.claimed_at " +
			"FROM consumer_messages m, message_claims c WHERE c.id = (SELECT max(id) FROM message_claims)")
		testapp.Eventually(t, "all are answered", func() bool {
			return watched.Count("SELECT count(*) FROM message_stops WHERE outcome = 'cancelled'") == 3
		})
		r.MustStop()
		if n := torn.Load(); n != 0 {
			t.Errorf("got %d looks at an answer and its message, or at neither, want none", n)
		}
	})
}

// TestCancelAndStopFreeAUniqueKey: a message that an operator has stopped, waiting or running, was not consumed.
func TestCancelAndStopFreeAUniqueKey(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		var running atomic.Int64
		a := testapp.New(t, db, bus.Consume("c", untilStopped(&running), bus.Timeout(2*time.Minute)))
		client, key := a.Admin(), outbox.InsertID("k", outbox.UniqueFor(time.Hour))
		a.Produce(order{ID: "1"}, key)
		if result, err := client.Cancel(a.Context(), db, a.Pending()[0].ID); err != nil || result.Changed != 1 {
			t.Errorf("Cancel: got %+v, %v", result, err)
		}
		stop := func() {
			t.Helper()
			if stopped, err := client.Stop(a.Context(), db, a.Pending()[0].ID); err != nil || stopped != admin.StopCancelled {
				t.Errorf("Stop: got %q, %v, want %q", stopped, err, admin.StopCancelled)
			}
			testapp.Eventually(t, "it is gone", a.Empty)
		}
		produce := func(after string) {
			t.Helper()
			if receipt := a.Produce(order{ID: "2"}, key); receipt.Enqueued != 1 {
				t.Fatalf("after %s: got %+v, want the key free", after, receipt)
			}
		}
		produce("Cancel")
		stop()
		produce("Stop of a waiting message")
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "it runs", func() bool { return running.Load() == 1 })
		stop()
		r.MustStop()
		produce("Stop of a running message")
	})
}

// startWatched starts a processor whose looks for requests to stop can be counted.
func startWatched(a *app, config outbox.ProcessorConfig) (r *testapp.Running, looks func() int) {
	a.Helper()
	var sent queries
	watched := *a
	watched.DB = a.DB.WithQueryHook(sent.hook())
	return watched.Start(config), func() int { return sent.count("message_stops", "outcome IS NULL") }
}

// askToStop has somebody ask that a message be stopped, and returns when its process knows of it.
// The answer comes when the message is settled.
func askToStop(a *app, looks func() int, id int64) (answer <-chan admin.StopResult) {
	a.Helper()
	answered := make(chan admin.StopResult, 1)
	go func() {
		how, err := a.Admin().Stop(context.WithoutCancel(a.Context()), a.DB, id)
		if err != nil {
			a.Errorf("Stop: %v", err)
		}
		answered <- how
	}()
	testapp.Eventually(a, "it is asked", func() bool { return a.Count("SELECT count(*) FROM message_stops") == 1 || len(answered) > 0 })
	before := looks() // the next finds it, and is over when there is one more
	testapp.Eventually(a, "the process knows", func() bool { return looks() >= before+2 || len(answered) > 0 })
	return answered
}

// waitsFor is a call that goes on when it is let, or ends with its context.
func waitsFor(ctx context.Context, goOn <-chan struct{}) error {
	select {
	case <-goOn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestToStopWhatWaitsLeavesTheRunBeforeItAlone: the first of the key comes alone, as it has failed,
// and has but one attempt left.
func TestToStopWhatWaitsLeavesTheRunBeforeItAlone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		again, goOn := make(chan struct{}), make(chan struct{})
		consume := func(ctx context.Context, steps []step) error {
			switch seen.addSteps(steps) {
			case 1:
				return errors.New("not this time")
			case 2:
				close(again)
				return waitsFor(ctx, goOn)
			}
			return nil
		}
		a := testapp.New(t, db, bus.ConsumeBatch("c", consume, bus.Ordered(bus.BlockKey), bus.MaxAttempts(2),
			bus.AttemptDelay(5*time.Millisecond), bus.Timeout(time.Minute)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(3, "a")...))
		second := a.Pending()[1].ID
		r, looks := startWatched(a, alone())
		<-again
		answer := askToStop(a, looks, second)
		close(goOn)
		if how := <-answer; how != admin.StopCancelled {
			t.Errorf("Stop: got %q, want %q", how, admin.StopCancelled)
		}
		testapp.Eventually(t, "all ran", func() bool { return a.Empty() || len(a.Poisoned()) > 0 })
		r.MustStop()
		if runs := seen.runs(); len(a.Poisoned()) > 0 || runs["a1"] != 2 || runs["a2"] != 1 || runs["a3"] != 2 {
			t.Errorf("got calls %v and %d poisoned, want a1 done in its second, and a3 without a2", seen.all, len(a.Poisoned()))
		}
	})
}

// TestToStopWhatIsNotInTheCallLeavesTheCallAlone: a layer of the last one takes longer than the
// others wait.
func TestToStopWhatIsNotInTheCallLeavesTheCallAlone(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		var first sync.Once
		running, goOn := make(chan struct{}), make(chan struct{})
		a := testapp.New(t, db, bus.ConsumeBatch("c", func(ctx context.Context, orders []order) error {
			seen.add(orders)
			first.Do(func() { close(running) })
			return waitsFor(ctx, goOn)
		}, bus.MaxAttempts(1), bus.Timeout(time.Minute)))
		a.ProduceMany(3)
		last := a.Pending()[2]
		config := alone()
		config.Middleware = append(middleware.Default(middleware.Options{}), func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				if m.ID.String() == last.MessageID {
					<-goOn
				}
				return next(ctx, m)
			}
		})
		r, looks := startWatched(a, config)
		<-running
		answer := askToStop(a, looks, last.ID)
		close(goOn)
		if how := <-answer; how != admin.StopCancelled {
			t.Errorf("Stop: got %q, want %q", how, admin.StopCancelled)
		}
		testapp.Eventually(t, "nothing waits", a.Empty)
		r.MustStop()
		if runs := seen.runs(); len(a.Poisoned()) > 0 || runs["0"] != 1 || runs["1"] != 1 || runs["2"] != 0 {
			t.Errorf("got calls %v and %d poisoned, want the others done in their first, and none of the last", seen.all, len(a.Poisoned()))
		}
	})
}

// TestToStopTheSecondOfAKeyTakesItOutOfItsBatch: the call ends, and the others run again.
func TestToStopTheSecondOfAKeyTakesItOutOfItsBatch(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		running := make(chan struct{})
		var whole atomic.Bool
		consume := func(ctx context.Context, steps []step) error {
			if !whole.Load() && len(steps) < 3 { // a busy machine may begin with fewer
				return bus.Snooze(0)
			}
			whole.Store(true)
			if seen.addSteps(steps) > 1 {
				return nil
			}
			close(running)
			return waitsFor(ctx, nil)
		}
		a := testapp.New(t, db, bus.ConsumeBatch("c", consume, bus.Ordered(bus.BlockKey), bus.MaxAttempts(1), bus.Timeout(time.Minute)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(3, "a")...))
		second := a.Pending()[1].ID
		r := a.Start(alone())
		<-running
		if how, err := a.Admin().Stop(t.Context(), db, second); how != admin.StopCancelled || err != nil {
			t.Errorf("Stop: got %q, %v, want %q", how, err, admin.StopCancelled)
		}
		testapp.Eventually(t, "all ran", func() bool { return a.Empty() || len(a.Poisoned()) > 0 })
		r.MustStop()
		if runs := seen.runs(); len(a.Poisoned()) > 0 || runs["a1"] != 2 || runs["a2"] != 1 || runs["a3"] != 2 {
			t.Errorf("got calls %v and %d poisoned, want a1 and a3 once more", seen.all, len(a.Poisoned()))
		}
	})
}

// TestToStopTheSecondOfAKeyTakesItOutOfItsGroup although the first, behind which it waits, fails.
func TestToStopTheSecondOfAKeyTakesItOutOfItsGroup(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	var firsts, seconds atomic.Int64
	running, goOn := make(chan struct{}), make(chan struct{})
	a := testapp.New(t, db, outbox.ConsumeTx("c", func(_ context.Context, _ bun.Tx, s step) error {
		switch {
		case s.N == 2:
			seconds.Add(1)
		case s.N == 1 && firsts.Add(1) == 1:
			close(running)
			<-goOn
			return errors.New("not this time")
		}
		return nil
	}, bus.Ordered(bus.BlockKey), outbox.GroupCommit(10), bus.AttemptDelay(5*time.Millisecond), bus.Timeout(time.Minute)))
	testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(3, "a")...))
	second := a.Pending()[1].ID
	r, looks := startWatched(a, alone())
	<-running
	answer := askToStop(a, looks, second)
	close(goOn)
	if how := <-answer; how != admin.StopCancelled {
		t.Errorf("Stop: got %q, want %q", how, admin.StopCancelled)
	}
	testapp.Eventually(t, "all ran", a.Empty)
	r.MustStop()
	if seconds.Load() > 0 {
		t.Errorf("got %d runs of the second, want it gone before it ever ran", seconds.Load())
	}
}

// TestARunIsStoppedWhilePollsFail: a poll that fails although the database answers delays no stop request.
func TestARunIsStoppedWhilePollsFail(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	var running atomic.Int64
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), bus.Consume("c", func(ctx context.Context, _ order) error {
		running.Add(1)
		<-ctx.Done()
		return context.Cause(ctx)
	}, bus.Timeout(10*time.Minute)))
	b := *a
	const clock = "UNION ALL SELECT 5, 0, 0,"
	b.DB = testdb.OpenRewritten(t, dsn, testdb.Replacing(t, clock, "UNION ALL SELECT 5, 1 / 0, 0,"))
	r := b.Start(testapp.Fast())
	testapp.Eventually(t, "it is ready: no poll would find the message", func() bool { return r.Health().Ready })
	a.Produce(order{ID: "1"})
	testapp.Eventually(t, "it runs", func() bool { return running.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stopped, err := a.Admin().Stop(ctx, a.DB, a.Pending()[0].ID)
	if err != nil || stopped != admin.StopCancelled {
		t.Errorf("Stop: got %q, %v, want %q", stopped, err, admin.StopCancelled)
	}
	r.MustStop()
}
