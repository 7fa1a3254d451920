package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/pending"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// step is the nth message of a key.
type step struct {
	Customer string
	N        int
}

func (step) PayloadType() string { return "step" }

func (s step) OrderingKey() string { return "customer:" + s.Customer }

// journal is a consumer of steps that notes what comes out of order, or runs beside another
// of its key.
type journal struct {
	mu      sync.Mutex
	running map[string]int
	done    map[string]int // the last of each key
	ran     []step
	wrong   []string
	again   bool                                    // a layer may have one run again that was done
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
	if want := j.done[s.Customer] + 1; s.N > want || s.N < want && !j.again {
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

// check reports what was wrong, and keys that have not come to where they should.
func (j *journal) check(t *testing.T, want map[string]int) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.wrong) > 0 {
		t.Errorf("got %d runs out of order, the first: %s", len(j.wrong), j.wrong[0])
	}
	if !maps.Equal(j.done, want) {
		t.Errorf("got the last of each key done as %v, want %v", j.done, want)
	}
}

// TestMessagesOfAKeyRunInOrder over three processors, with failures, retries and snoozes, in
// batches and one by one.
func TestMessagesOfAKeyRunInOrder(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		j := newJournal(func(context.Context, step) error {
			switch rand.IntN(20) {
			case 0:
				return errors.New("not this time")
			case 1:
				return bus.Snooze(5 * time.Millisecond)
			}
			return nil
		})
		a := testapp.New(t, db, bus.Consume("c", j.consume, bus.Ordered(bus.BlockKey), bus.AttemptDelay(5*time.Millisecond),
			bus.MaxAttempts(100)))
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
		want := make(map[string]int)
		for k := range keys {
			want[fmt.Sprint(k)] = each
		}
		j.check(t, want)
	})
}

// produceSteps produces those of a key, from one number to another.
func produceSteps(a *testapp.App, customer string, from, to int) {
	for n := from; n <= to; n++ {
		a.Produce(step{customer, n})
	}
}

// poisonedOnce is a consumer's work that poisons one step, the first time.
func poisonedOnce(which step) func(context.Context, step) error {
	var before atomic.Bool
	return func(_ context.Context, s step) error {
		if s == which && !before.Swap(true) {
			return bus.Permanent(errors.New("cannot be"))
		}
		return nil
	}
}

// TestAPoisonedMessageBlocksItsKey until it is requeued, and then runs first.
func TestAPoisonedMessageBlocksItsKey(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		j := newJournal(poisonedOnce(step{"a", 2}))
		a := testapp.New(t, db, bus.Consume("c", j.consume, bus.Ordered(bus.BlockKey)))
		produceSteps(a, "a", 1, 4)
		produceSteps(a, "b", 1, 4)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "the others ran", func() bool { return len(a.Pending()) == 2 && len(a.Poisoned()) == 1 })
		keys := testapp.Must[[]pending.BlockedKey](t)(a.PendingReader().BlockedKeys(t.Context(), db, "", 10))
		poisoned := a.Poisoned()[0]
		if len(keys) != 1 || keys[0].Key != "customer:a" || keys[0].Consumer != "c" || keys[0].Poisoned != poisoned.ID ||
			keys[0].Waiting != 2 || keys[0].Since.IsZero() {
			t.Errorf("Keys: got %+v, want that of message %d with 2 behind it", keys, poisoned.ID)
		}
		e := testapp.Must[admin.Explanation](t)(a.Admin().Explain(t.Context(), db, a.Pending()[0].ID))
		if e.Reason != admin.KeyBlocked || !strings.Contains(e.Text, fmt.Sprintf("Message %d of key \"customer:a\" was poisoned", poisoned.ID)) {
			t.Errorf("Explain: got %q, %s", e.Reason, e.Text)
		}
		produceSteps(a, "a", 5, 5)
		poisons := testapp.Must[*poison.Store](t)(poison.NewStore(a.Registry))
		shown := testapp.Must[poison.Message](t)(poisons.Get(t.Context(), db, poisoned.ID))
		if shown.OrderingKey != "customer:a" || !shown.BlocksKey || shown.Crashes != 0 {
			t.Errorf("Get: got %+v, want its key, and that it parks", shown)
		}
		testapp.Must[poison.Result](t)(poisons.Requeue(t.Context(), db, poisoned.ID))
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		j.check(t, map[string]int{"a": 5, "b": 4})
	})
}

// TestAPoisonedMessageIsSkipped where the consumer says so, and runs before what is left once
// it is requeued. One that parks its key lets go of it when it is discarded, too.
func TestAPoisonedMessageIsSkipped(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran, parked noted
		fails := func(_ context.Context, s step) error {
			if s.N == 2 {
				return bus.Permanent(errors.New("cannot be"))
			}
			return nil
		}
		consume := func(n *noted) func(context.Context, step) error {
			return func(ctx context.Context, s step) error {
				return errors.Join(n.consume(ctx, order{ID: fmt.Sprint(s.N)}), fails(ctx, s))
			}
		}
		a := testapp.New(t, db, bus.Consume("skips", consume(&ran), bus.Ordered(bus.SkipPoisoned)),
			bus.Consume("parks", consume(&parked), bus.Ordered(bus.BlockKey)))
		produceSteps(a, "a", 1, 3)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "one goes on, the other does not", func() bool { return len(a.Pending()) == 1 && len(a.Poisoned()) == 2 })
		checkBlocked(a, r.Queues, 1)
		if keys := testapp.Must[[]pending.BlockedKey](t)(a.PendingReader().BlockedKeys(t.Context(), db, "", 10)); len(keys) != 1 ||
			keys[0].Consumer != "parks" {
			t.Errorf("Keys: got %+v, want the one of parks", keys)
		}
		poisons := testapp.Must[*poison.Store](t)(poison.NewStore(a.Registry))
		for _, p := range a.Poisoned() {
			if p.ConsumerType == "parks" {
				testapp.Must[int](t)(poisons.Discard(t.Context(), db, p.ID))
			}
		}
		testapp.Eventually(t, "it goes on as well", a.Empty)
		checkBlocked(a, r.Queues, 0)
		r.MustStop()
		if got := fmt.Sprint(ran.ids, parked.ids); got != "[1 2 3] [1 2 3]" {
			t.Errorf("got %s run, want 1 to 3 of each", got)
		}
	})
}

// checkBlocked asks a processor and an admin how many keys of the consumer parks are blocked.
func checkBlocked(a *app, queues func(context.Context) ([]admin.Queue, error), want int64) {
	a.Helper()
	for by, list := range map[string][]admin.Queue{
		"a processor": testapp.Must[[]admin.Queue](a.T)(queues(a.Context())),
		"an admin":    testapp.Must[[]admin.Queue](a.T)(a.Admin().Queues(a.Context(), a.DB)),
	} {
		for _, q := range list {
			if parks := q.Consumer == "parks"; q.BlocksKeys != parks || parks && q.BlockedKeys != want || !parks && q.BlockedKeys != 0 {
				a.Errorf("queues by %s: got %+v, want %d blocked keys of the one that parks", by, q, want)
			}
		}
	}
}

// TestCancellingLetsThoseBehindRun, and one that is rescheduled keeps them waiting.
func TestCancellingLetsThoseBehindRun(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran noted
		a := testapp.New(t, db, bus.Consume("c",
			func(ctx context.Context, s step) error { return ran.consume(ctx, order{ID: fmt.Sprint(s.N)}) }, bus.Ordered(bus.BlockKey)))
		produceSteps(a, "a", 1, 3)
		waits := a.Pending()
		client := a.Admin()
		testapp.Must[admin.Result](t)(client.Reschedule(t.Context(), db, time.Now().Add(time.Hour), waits[0].ID, waits[1].ID))
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "the last is seen", func() bool { return r.Stats().EmptyClaims > 0 })
		e := testapp.Must[admin.Explanation](t)(client.Explain(t.Context(), db, waits[2].ID))
		if want := fmt.Sprintf("Waits for message %d of key \"customer:a\". About that message: Due in ",
			waits[0].ID); e.Reason != admin.BehindKey || !strings.HasPrefix(e.Text, want) {
			t.Errorf("Explain: got %q, %s, want %q, %s", e.Reason, e.Text, admin.BehindKey, want)
		}
		err := db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
			_, err := client.Cancel(ctx, tx, waits[0].ID)
			return err
		})
		if bound := db.Dialect().Name() != dialect.SQLite; errors.Is(err, bus.ErrInvalidOption) != bound {
			t.Errorf("Cancel in a transaction of the caller's: got %v, want %v: %t", err, bus.ErrInvalidOption, bound)
		}
		testapp.Must[admin.Result](t)(client.Cancel(t.Context(), db, waits[0].ID))
		testapp.Must[admin.Result](t)(client.RunNow(t.Context(), db, waits[1].ID))
		testapp.Eventually(t, "the others ran", a.Empty)
		r.MustStop()
		if !slices.Equal(ran.ids, []string{"2", "3"}) {
			t.Errorf("got %v run, want 2 and 3", ran.ids)
		}
	})
}

// TestOrderIsThatOfTheCall, whatever the insert ids, and what replaces another comes behind
// all that there are.
func TestOrderIsThatOfTheCall(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var ran noted
		a := testapp.New(t, db, bus.Consume("c", ran.consume, bus.Ordered(bus.BlockKey)))
		item := func(id string, options ...outbox.Option) outbox.Item {
			return outbox.Item{Payload: order{ID: id}, Options: append(options, outbox.OrderingKey("k"))}
		}
		testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db,
			item("1", outbox.InsertID("z")), item("2"), item("3", outbox.InsertID("m")), item("4", outbox.InsertID("z")), item("5",
				outbox.InsertID("a")), item("6")))
		want := []string{"1", "2", "5", "6", "7", "8", "10", "11"}
		if db.Dialect().Name() == dialect.MySQL { // nothing is replaced
			want = []string{"1", "2", "3", "5", "6"}
		} else {
			a.Produce(order{ID: "7"}, outbox.OrderingKey("k"), outbox.InsertID("m", outbox.Replace()))
			testapp.Must[[]outbox.Receipt](t)(a.Producer.ProduceMany(t.Context(), db, item("8"), item("9", outbox.InsertID("q", outbox.Replace())),
				item("10", outbox.InsertID("b", outbox.Replace())), item("11", outbox.InsertID("q", outbox.Replace()))))
		}
		if n := a.Count("SELECT count(*) FROM consumer_messages WHERE crashes = 0 AND " + withKey(db,
			"order_key = 'k' AND lane > 0")); n != len(want) {
			t.Errorf("got %d rows with the key, want %d", n, len(want))
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		if !slices.Equal(ran.ids, want) {
			t.Errorf("got %v, want %v", ran.ids, want)
		}
	})
}

func TestAnOrderedConsumerNeedsAKey(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c", bus.Ordered(bus.BlockKey)), testapp.Consumed("free"))
		for want, options := range map[error][]outbox.Option{
			bus.ErrNoKey:         nil,
			bus.ErrTooLarge:      {outbox.OrderingKey(strings.Repeat("k", 256))},
			bus.ErrInvalidText:   {outbox.OrderingKey("k\x00")},
			bus.ErrInvalidOption: {outbox.OrderingKey("")},
		} {
			if _, err := a.Producer.Produce(t.Context(), db, order{ID: "1"}, options...); !errors.Is(err, want) {
				t.Errorf("Produce: got %v, want %v", err, want)
			}
		}
		if _, err := a.Producer.Produce(t.Context(), db, order{ID: "1"}, outbox.OrderingKey("k"),
			outbox.Delay(time.Second)); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("Produce with a delay: got %v, want %v", err, bus.ErrInvalidOption)
		}
		a.Produce(order{ID: "1"}, outbox.OrderingKey("k"))
		if n := a.Count("SELECT count(*) FROM consumer_messages WHERE NOT (" + withKey(db,
			"order_key IS NOT NULL") + ") AND crashes = 0 AND consumer_type = 'free'"); n != 1 || len(a.Pending()) != 2 {
			t.Errorf("got %d rows without the key and %d in all, want 1 of 2: the consumer that is not ordered has none", n, len(a.Pending()))
		}
	})
}

// TestOrderHoldsAcrossARename: while a consumer is renamed, messages are stored under both names in turn, and run in the order
// in which they were produced.
// Promise: key-order
func TestOrderHoldsAcrossARename(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		j := newJournal(nil)
		a := testapp.New(t, db, bus.Consume("new", j.consume, bus.Ordered(bus.BlockKey), bus.Aliases("old")))
		for n := 1; n <= 20; n++ {
			for _, customer := range []string{"a", "b", "c"} {
				a.Produce(step{customer, n})
			}
		}
		first := a.Pending()[0].ID
		for _, table := range slices.Compact([]string{"consumer_messages", keyTable(db)}) {
			a.Exec(fmt.Sprintf("UPDATE %s SET consumer_type = 'old' WHERE (id - %d) %% 2 = 1 OR id < %[2]d + 9", table, first))
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		j.check(t, map[string]int{"a": 20, "b": 20, "c": 20})
	})
}

// TestMessagesWithKeysOutliveTheOrder of their consumer: they run in order all the same, and
// what has no key runs beside them.
func TestMessagesWithKeysOutliveTheOrder(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		testapp.New(t, db, bus.Consume("c", newJournal(nil).consume, bus.Ordered(bus.BlockKey))).Produce(step{"a", 1})
		j := newJournal(nil)
		a := testapp.New(t, db, bus.Consume("c", j.consume))
		a.Produce(step{"b", 1})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "both ran", a.Empty)
		r.MustStop()
		j.check(t, map[string]int{"a": 1, "b": 1})
	})
}

// TestADeclarationWithoutKeysIsReported: what another program produces without keys for a consumer that uses them is counted, and
// said once.
func TestADeclarationWithoutKeysIsReported(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]bus.ConsumerOption{
		"ordered": bus.Ordered(bus.BlockKey), "key concurrency": bus.KeyConcurrency(1), "fair": bus.Fair(),
		"key rate": bus.KeyRateLimit(100, time.Second, 100),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each := testdb.EachWithEvents // MariaDB has order alone
			if name == "ordered" {
				each = testdb.Each
			}
			each(t, func(t *testing.T, db *bun.DB) {
				var lines testapp.Lines
				a := testapp.New(t, db, bus.Consume("c", func(context.Context, step) error { return nil }, option))
				elsewhere := testapp.New(t, db, bus.Declare[step]("c"))
				for n := range 5 {
					elsewhere.Produce(step{"a", n})
				}
				a.Produce(step{"b", 1})
				config := testapp.Fast()
				config.Logger = lines.Logger()
				r := a.Start(config)
				testapp.Eventually(t, "all ran", a.Empty)
				r.MustStop()
				if n, said := r.Stats().Unkeyed, strings.Count(lines.String(), "messages have no key"); n != 5 || said != 1 {
					t.Errorf("got %d counted, and %d warnings, want 5 and one", n, said)
				}
			})
		})
	}
}

// TestACrashIsTheFirstOnes: of a run whose process has vanished only the first message has
// crashed, and runs alone; those behind it had not begun.
func TestACrashIsTheFirstOnes(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		j := newJournal(nil)
		a := testapp.New(t, db, bus.Consume("c", j.consume, bus.Ordered(bus.BlockKey)))
		produceSteps(a, "a", 1, 3)
		produceSteps(a, "b", 1, 2)
		list := "(SELECT json_group_array(%s) FROM (SELECT * FROM consumer_messages ORDER BY id))"
		switch db.Dialect().Name() {
		case dialect.PG:
			list = "ARRAY(SELECT %s FROM consumer_messages ORDER BY id)"
		case dialect.MySQL:
			list = "(SELECT JSON_ARRAYAGG(%s ORDER BY id) FROM message_lanes)"
		}
		a.Exec("INSERT INTO message_claims (owner, solo, claimed_at, leased_until, consumer_type, message_ids, lanes) SELECT 'dead', FALSE, " +
			testapp.NowOf(db) + ", " + testapp.In(db, -time.Second) + ", 'c', " +
			fmt.Sprintf(list, "id") + ", " + fmt.Sprintf(list, "lane"))
		st := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		testapp.Must[store.Recovered](t)(st.Claims.Recover(t.Context(), db, 8))
		for _, row := range a.Pending() {
			if first := strings.Contains(row.Payload, `"N":1`); row.Crashes != 0 && !first || first && row.Crashes != 1 {
				t.Errorf("%s: got %d crashes, want one of the first only", row.Payload, row.Crashes)
			}
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all ran", a.Empty)
		r.MustStop()
		j.check(t, map[string]int{"a": 3, "b": 2})
	})
}

// keyTable is where keys are.
func keyTable(db *bun.DB) string {
	if db.Dialect().Name() == dialect.MySQL {
		return "message_lanes"
	}
	return "consumer_messages"
}

// withKey is true of messages whose key, or lane, is as the condition says.
func withKey(db *bun.DB, condition string) string {
	if keyTable(db) != "consumer_messages" {
		return "id IN (SELECT id FROM message_lanes WHERE " + condition + ")"
	}
	return condition
}
