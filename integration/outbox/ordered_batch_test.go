package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// consumeBatch is consume for many steps at once. What comes behind one of its key that has
// failed is said to be done, and is to come again all the same.
func (j *journal) consumeBatch(ctx context.Context, steps []step) error {
	failed := bus.BatchError{}
	stuck := make(map[string]bool)
	for i, s := range steps {
		if stuck[s.Customer] {
			continue
		}
		if err := j.consume(ctx, s); err != nil {
			failed[i], stuck[s.Customer] = err, true
		}
	}
	return failed
}

// TestBatchesKeepTheOrderOfKeys over three processors: of elements that fail, and of batches.
func TestBatchesKeepTheOrderOfKeys(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		several := 0 // calls with more than one of a key
		j := newJournal(func(context.Context, step) error {
			switch rand.IntN(40) {
			case 0:
				return errors.New("not this time")
			case 1:
				return bus.Snooze(5 * time.Millisecond)
			}
			return nil
		})
		consume := func(ctx context.Context, steps []step) error {
			if rand.IntN(10) == 0 {
				return errors.New("none of them")
			}
			mu.Lock()
			if len(steps) > 1 && steps[0].Customer == steps[1].Customer {
				several++
			}
			mu.Unlock()
			return j.consumeBatch(ctx, steps)
		}
		a := testapp.New(t, db, bus.ConsumeBatch("c", consume, bus.Ordered(bus.BlockKey), bus.BatchSize(30),
			bus.AttemptDelay(5*time.Millisecond), bus.MaxAttempts(100)))
		const keys, each = 12, 60
		want := make(map[string]int)
		for k := range keys {
			want[fmt.Sprint(k)] = each
		}
		var processors []*testapp.Running
		for range 3 {
			processors = append(processors, a.Start(testapp.Fast()))
		}
		for n := 1; n <= each; n += 6 {
			var items []outbox.Item
			for k := range keys {
				for i := range 6 {
					items = append(items, outbox.Item{Payload: step{fmt.Sprint(k), n + i}})
				}
			}
			testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, items...))
		}
		testapp.Eventually(t, "all ran", a.Empty)
		for _, r := range processors {
			r.MustStop()
		}
		j.check(t, want)
		if several == 0 {
			t.Error("no call had two messages of one key, want many that have")
		}
	})
}

// TestALayerThatFailsADoneMessageDelaysThoseBehindIt although the call that they shared has
// done them.
func TestALayerThatFailsADoneMessageDelaysThoseBehindIt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var mu sync.Mutex
		var ran []int
		consume := func(_ context.Context, steps []step) error {
			mu.Lock()
			defer mu.Unlock()
			for _, s := range steps {
				ran = append(ran, s.N)
			}
			return nil
		}
		a := testapp.New(t, db, bus.ConsumeBatch("c", consume, bus.Ordered(bus.BlockKey), bus.AttemptDelay(5*time.Millisecond)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(5, "a")...))
		failsSecond := func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				err := next(ctx, m)
				if err == nil && m.Attempt == 1 && strings.Contains(string(m.Payload), `"N":2`) {
					return errors.New("the layer has failed")
				}
				return err
			}
		}
		config := alone()
		config.Middleware = append(middleware.Default(middleware.Options{}), failsSecond)
		r := a.Start(config)
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		first := len(ran) - 4 // on a busy machine the first call does not have all five
		if first < 2 || !slices.Equal(ran[:first], []int{1, 2, 3, 4, 5}[:min(first, 5)]) || !slices.Equal(ran[first:], []int{2, 3, 4, 5}) {
			t.Errorf("got %v, want 1 to 5, and 2 to 5 once more", ran)
		}
	})
}

// TestABatchThatFailsIsAFailureOfTheFirstOfEachKey in the eyes of the chain, too.
func TestABatchThatFailsIsAFailureOfTheFirstOfEachKey(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	var size, keys int // of the first call, which a busy machine may begin without the others
	consume := func(_ context.Context, steps []step) error {
		if calls.Add(1) > 1 {
			return nil
		}
		of := make(map[string]bool)
		for _, s := range steps {
			of[s.Customer] = true
		}
		size, keys = len(steps), len(of)
		return errors.New("none of them")
	}
	a := testapp.New(t, testdb.SQLite(t), bus.ConsumeBatch("c", consume, bus.Ordered(bus.BlockKey), bus.AttemptDelay(time.Millisecond)))
	testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), a.DB, stepsOf(3, "a", "b")...))
	var mu sync.Mutex
	seen := make(map[bus.Outcome]int)
	notes := func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			err := next(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			seen[bus.OutcomeOf(err).Outcome]++
			return err
		}
	}
	config := alone()
	config.Middleware = append(middleware.Default(middleware.Options{}), notes)
	r := a.Start(config)
	testapp.Eventually(t, "all ran", a.Empty)
	r.MustStop()
	if seen[bus.Errored] != keys || seen[bus.Released] < size-keys || seen[bus.Done] != 6 {
		t.Errorf("got outcomes %v after a call with %d of %d keys, want one of each failed, the others released and then 6 done", seen,
			size, keys)
	}
}

// failsFirst has the function of a batch fail for a step in its first attempt, and returns what
// is to be returned for it otherwise.
func failsFirst(ctx context.Context, i int, s, which step, err error) error {
	if s == which && bus.BatchFromContext(ctx)[i].Attempt == 1 {
		return errors.New("not this time")
	}
	return err
}

// runBehindOneWithoutAKey runs a batch of one message without a key, as an older program
// produces it, and of four of a key. On virtual time the batch waits until all are there.
func runBehindOneWithoutAKey(ctx context.Context, a *app, older bus.Consumer) {
	a.Helper()
	before := testapp.New(a.T, a.DB, older)
	r := a.StartWith(ctx, alone())
	before.ProduceAt(ctx, step{"none", 1})
	testapp.Poll(a.T, "the one without a key waits", time.Minute, time.Millisecond, func() bool { return r.Stats().Claimed == 1 })
	testapp.Must[[]outbox.Receipt](a.T)(a.Producer.ProduceMany(ctx, a.DB, stepsOf(4, "a")...))
	testapp.Sooner(a.T, "all ran", a.Empty)
	r.MustStop()
}

// TestOneWithoutAKeyLeavesTheOthersTheirOrder although it is the first of their batch.
func TestOneWithoutAKeyLeavesTheOthersTheirOrder(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var seen calls
		var failed atomic.Bool
		j := newJournal(func(_ context.Context, s step) error {
			if s == (step{"a", 2}) && !failed.Swap(true) {
				return errors.New("not this time")
			}
			return nil
		})
		consume := func(ctx context.Context, steps []step) error {
			seen.addSteps(steps)
			return j.consumeBatch(ctx, steps)
		}
		a := newApp(bus.ConsumeBatch("c", consume, bus.Ordered(bus.BlockKey), bus.BatchSize(5), bus.BatchWait(time.Second),
			bus.AttemptDelay(20*time.Millisecond)))
		runBehindOneWithoutAKey(ctx, a, bus.ConsumeBatch("c", consume))
		j.check(t, map[string]int{"none": 1, "a": 4})
		if batch := seen.all[0]; !slices.Equal(batch, []string{"none1", "a1", "a2", "a3", "a4"}) {
			t.Errorf("got %v in the first call, want all of them", batch)
		}
	})
}

// TestOneWithoutAKeyLeavesTheOthersTheirOrderInATransaction, too.
func TestOneWithoutAKeyLeavesTheOthersTheirOrderInATransaction(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
		var seen calls
		var wrong atomic.Value
		consume := func(ctx context.Context, tx bun.Tx, steps []step) error {
			seen.addSteps(steps)
			failed := bus.BatchError{}
			for i, s := range steps {
				failed[i] = failsFirst(ctx, i, s, step{"a", 2}, inOrder(0, &wrong)(ctx, tx, s))
			}
			return failed
		}
		a := newApp(outbox.ConsumeBatchTx("c", consume, append(inOrderOptions(), bus.BatchSize(5), bus.BatchWait(time.Second))...))
		a.Exec("CREATE TABLE taken (customer VARCHAR(20), n INTEGER, UNIQUE (customer, n))")
		runBehindOneWithoutAKey(ctx, a, outbox.ConsumeBatchTx("c", consume))
		if said := wrong.Load(); said != nil {
			t.Error(said)
		}
		if n := a.Count("SELECT count(*) FROM taken"); n != 5 || len(seen.all[0]) != 5 {
			t.Errorf("got %d effects, and %v in the first call, want 5 of each", n, seen.all[0])
		}
	})
}

// TestWhatComesBehindAnUnreadablePayloadWaits, since that parks its key.
func TestWhatComesBehindAnUnreadablePayloadWaits(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		a := testapp.New(t, db, bus.ConsumeBatch("c", func(_ context.Context, steps []step) error { seen.addSteps(steps); return nil },
			bus.Ordered(bus.BlockKey)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(3, "a")...))
		a.Exec("UPDATE consumer_messages SET payload = ? WHERE id = ?", `{"Customer":"a","N":"two"}`, a.Pending()[1].ID)
		r := a.Start(alone())
		testapp.Eventually(t, "it is poisoned", func() bool { return len(a.Poisoned()) == 1 })
		a.Produce(step{"b", 1}) // comes after what there was to do for the other key
		testapp.Eventually(t, "what is not behind it ran", func() bool { return seen.runs()["b1"] == 1 })
		testapp.Eventually(t, "one waits", func() bool { return len(a.Pending()) == 1 })
		r.MustStop()
		if runs := seen.runs(); runs["a1"] != 1 || runs["a3"] != 0 {
			t.Errorf("got calls %v, want a1 and not a3, which is behind a payload that cannot be read", seen.all)
		}
	})
}

// TestALayerWithALockDoesNotBlockABatch: whoever has its lock must not wait for one
// that waits for the lock.
func TestALayerWithALockDoesNotBlockABatch(t *testing.T) {
	for name, option := range map[string]bus.ConsumerOption{"in any order": bus.Fair(), "in order": bus.Ordered(bus.BlockKey)} {
		t.Run(name, func(t *testing.T) {
			testapp.Virtual(t, func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *app) {
				a := newApp(bus.ConsumeBatch("c", func(context.Context, []step) error { return nil }, option, bus.Timeout(20*time.Second)))
				lock := make(chan struct{}, 1)
				config := alone()
				config.Middleware = append(middleware.Default(middleware.Options{}), func(next bus.Handler) bus.Handler {
					return func(ctx context.Context, m *bus.Message) error {
						lock <- struct{}{}
						defer func() { <-lock }()
						return next(ctx, m)
					}
				})
				testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(ctx, a.DB, stepsOf(20, "a")...))
				began := time.Now()
				r := a.StartWith(ctx, config)
				testapp.Sooner(t, "all ran", a.Empty)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("took %s, want some 10 ms for each of 20", took)
				}
				r.MustStop()
			})
		})
	}
}

// TestStepsKeepTheOrderOfABatch of which one fails: that one comes alone, and then those behind it.
func TestStepsKeepTheOrderOfABatch(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		a := testapp.New(t, db, bus.ConsumeBatch("c", func(ctx context.Context, batch []step) error {
			seen.addSteps(batch)
			failed := bus.BatchError{}
			for i, s := range batch {
				failed[i] = failsFirst(ctx, i, s, step{"a", 2}, nil)
			}
			return failed
		}, bus.Ordered(bus.BlockKey), bus.AttemptDelay(time.Millisecond)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(4, "a")...))
		p := newProcessor(a, testapp.Fast())
		testapp.Eventually(t, "all ran", func() bool { steps(t.Context(), a, p); return a.Empty() })
		if got := fmt.Sprint(seen.all); got != "[[a1 a2 a3 a4] [a2] [a3 a4]]" {
			t.Errorf("got calls %s", got)
		}
		if n := a.Count("SELECT count(*) FROM message_claims"); n != 0 {
			t.Errorf("got %d claims left, want none", n)
		}
	})
}

// TestALayerThatHangsDelaysOnlyItsKey, also while the processor stops, and nothing of the key
// is lost.
func TestALayerThatHangsDelaysOnlyItsKey(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var seen calls
		a := testapp.New(t, db, bus.ConsumeBatch("c", func(_ context.Context, steps []step) error { seen.addSteps(steps); return nil },
			bus.Ordered(bus.BlockKey)))
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, stepsOf(3, "a", "b")...))
		hang := make(chan struct{})
		config := alone()
		config.DrainTimeout = 50 * time.Millisecond
		config.Middleware = append(middleware.Default(middleware.Options{}), func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				if strings.Contains(string(m.Payload), `"a","N":1`) {
					<-hang
				}
				return next(ctx, m)
			}
		})
		r := a.Start(config)
		testapp.Eventually(t, "the other key ran", func() bool { return seen.runs()["b3"] > 0 })
		drain := &bus.DrainError{}
		if err := r.Wait(); !errors.As(err, &drain) {
			t.Errorf("Run: got %v, want who hangs", err)
		}
		if runs := seen.runs(); runs["a1"]+runs["a2"]+runs["a3"] > 0 {
			t.Errorf("got calls %v while the first of the key hung, want none of it", seen.all)
		}
		close(hang)
		again := a.Start(alone())
		testapp.Eventually(t, "all ran", a.Empty)
		again.MustStop()
		if last := seen.all[len(seen.all)-1]; !slices.Contains(last, "a3") {
			t.Errorf("got calls %v, want the key in the last", seen.all)
		}
	})
}

// inOrder is a consumer of steps that writes each down in its transaction, and wants those
// before it to be there, and no other: else it says so in wrong.
func inOrder(fails int, wrong *atomic.Value) func(context.Context, bun.Tx, step) error {
	return func(ctx context.Context, tx bun.Tx, s step) error {
		var before int
		if err := tx.NewRaw("SELECT count(*) FROM taken WHERE customer = ?", s.Customer).Scan(ctx, &before); err != nil {
			return err
		}
		if before != s.N-1 {
			wrong.Store(fmt.Sprintf("out of order: %d of %s ran after %d", s.N, s.Customer, before))
			return errors.New("it is not its turn")
		}
		if _, err := tx.NewRaw("INSERT INTO taken (customer, n) VALUES (?, ?)", s.Customer, s.N).Exec(ctx); err != nil {
			return err
		}
		if fails > 0 && rand.IntN(fails) == 0 {
			return errors.New("not this time")
		}
		return nil
	}
}

func inOrderOptions() []bus.ConsumerOption {
	return []bus.ConsumerOption{bus.Ordered(bus.BlockKey), bus.AttemptDelay(5 * time.Millisecond), bus.MaxAttempts(100),
		bus.Timeout(5 * time.Second)}
}

// TestTransactionalMessagesOfAKeyRunInOrder, each in a transaction of its own, many in one, and in batches.
func TestTransactionalMessagesOfAKeyRunInOrder(t *testing.T) {
	t.Parallel()
	var wrong atomic.Value
	single := func(options ...bus.ConsumerOption) bus.Consumer {
		return outbox.ConsumeTx("c", inOrder(30, &wrong), options...)
	}
	batched := func(options ...bus.ConsumerOption) bus.Consumer {
		return outbox.ConsumeBatchTx("c", func(ctx context.Context, tx bun.Tx, steps []step) error {
			failed := bus.BatchError{}
			for i, s := range steps {
				failed[i] = inOrder(60, &wrong)(ctx, tx, s)
			}
			return failed
		}, options...)
	}
	for name, consumer := range map[string]bus.Consumer{
		"one by one": single(inOrderOptions()...), "in groups": single(append(inOrderOptions(),
			outbox.GroupCommit(10))...), "in batches": batched(append(inOrderOptions(), bus.BatchSize(20))...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				a := testapp.New(t, db, consumer)
				a.Exec("CREATE TABLE taken (customer VARCHAR(20), n INTEGER, UNIQUE (customer, n))")
				const keys, each = 4, 24
				for n := 1; n <= each; n += 4 {
					var items []outbox.Item
					for k := range keys {
						for i := range 4 {
							items = append(items, outbox.Item{Payload: step{fmt.Sprint(k), n + i}})
						}
					}
					testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, items...))
				}
				var processors []*testapp.Running
				for range 2 {
					processors = append(processors, a.Start(testapp.Fast()))
				}
				testapp.Eventually(t, "all ran", func() bool { return a.Empty() || len(a.Poisoned()) > 0 })
				for _, r := range processors {
					r.MustStop()
				}
				if said := wrong.Load(); said != nil {
					t.Error(said)
				}
				for _, p := range a.Poisoned() {
					t.Errorf("poisoned: %s", p.Errors)
				}
				if n := a.Count("SELECT count(*) FROM taken"); n != keys*each {
					t.Errorf("got %d effects, want %d", n, keys*each)
				}
			})
		})
	}
}

// TestACommitThatFailsDelaysItsKey and no other: whoever is to blame is found, and none behind it
// runs before it.
func TestACommitThatFailsDelaysItsKey(t *testing.T) {
	t.Parallel()
	var wrong atomic.Value
	consume := func(ctx context.Context, tx bun.Tx, steps []step) error {
		for i, s := range steps {
			if err := inOrder(0, &wrong)(ctx, tx, s); err != nil {
				return err
			}
			if s != (step{"a", 2}) || bus.BatchFromContext(ctx)[i].Attempt > 2 {
				continue
			}
			if _, err := tx.NewRaw("INSERT INTO later VALUES (1), (1)").Exec(ctx); err != nil { // which is found out at the commit
				return err
			}
		}
		return nil
	}
	a := testapp.New(t, testdb.Postgres(t), outbox.ConsumeBatchTx("c", consume, inOrderOptions()...))
	a.Exec("CREATE TABLE taken (customer VARCHAR(20), n INTEGER, UNIQUE (customer, n))")
	a.Exec("CREATE TABLE later (id int, UNIQUE (id) DEFERRABLE INITIALLY DEFERRED)")
	testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), a.DB, stepsOf(3, "a", "b")...))
	r := a.Start(alone())
	testapp.Eventually(t, "the other key ran", func() bool { return a.Count("SELECT count(*) FROM taken WHERE customer = 'b'") == 3 })
	testapp.Eventually(t, "all ran", a.Empty)
	r.MustStop()
	if said := wrong.Load(); said != nil {
		t.Error(said)
	}
	if n := a.Count("SELECT count(*) FROM taken"); n != 6 || len(a.Poisoned()) > 0 {
		t.Errorf("got %d effects and %d poisoned, want 6 and none", n, len(a.Poisoned()))
	}
}
