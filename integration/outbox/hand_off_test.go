package outbox_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// handOffs records which messages of an application were handed off.
type handOffs struct {
	db   *bun.DB
	mu   sync.Mutex
	runs map[string]int  // by the id of the order
	born map[string]bool // claimed by the transaction that wrote it
}

// run notes a run of a message, and whose claim it is in.
func (h *handOffs) run(ctx context.Context, o order) error {
	m, _ := bus.MessageFromContext(ctx)
	var claims []int64
	err := h.db.NewRaw(`SELECT c.id FROM message_claims c JOIN consumer_messages m ON m.id = ANY(c.message_ids)
		WHERE m.message_id = ? AND m.consumer_type = ?`, m.ID, m.Consumer).Scan(ctx, &claims)
	if err == nil && len(claims) != 1 {
		err = fmt.Errorf("the message is in the claims %v, want one", claims)
	}
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs[o.ID]++
	h.born[o.ID] = claims[0] < 0
	return nil
}

func (h *handOffs) of(id string) (runs int, handedOff bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.runs[id], h.born[id]
}

// handingOff starts an application that hands messages off to consumers with these options.
func handingOff(
	t *testing.T, db *bun.DB, config outbox.ProcessorConfig, options ...bus.ConsumerOption,
) (*testapp.App, *handOffs, *testapp.Running) {
	t.Helper()
	h := &handOffs{db: db, runs: make(map[string]int), born: make(map[string]bool)}
	a := testapp.New(t, db, bus.Consume("c", h.run, options...), testapp.Consumed("other"))
	r := a.Start(config)
	return a, h, r
}

// produceInTx produces an order, and calls then in the same transaction.
func produceInTx(a *testapp.App, id string, then func(ctx context.Context, tx bun.Tx) error, options ...outbox.Option) error {
	return a.Producer.RunInTx(a.Context(), a.DB, func(ctx context.Context, tx bun.Tx) error {
		if _, err := a.Producer.Produce(ctx, tx, order{ID: id}, options...); err != nil {
			return err
		}
		return then(ctx, tx)
	})
}

func noMore(context.Context, bun.Tx) error { return nil }

// untilHandedOff produces until a message is handed off: a processor that has just started looks for
// older ones first.
func untilHandedOff(a *testapp.App, h *handOffs, what string) {
	a.Helper()
	n := 0
	testapp.Eventually(a.T, what+": a message is handed off", func() bool {
		n++
		id := fmt.Sprint(what, "-", n)
		if err := produceInTx(a, id, noMore); err != nil {
			a.Fatal(err)
		}
		runs := 0
		testapp.Eventually(a.T, "it ran", func() bool { runs, _ = h.of(id); return runs > 0 })
		_, handedOff := h.of(id)
		return handedOff
	})
}

// TestMessagesAreHandedOff: what RunInTx writes, or a call on the pool, runs in this process without
// a claim of its own, and leaves nothing behind.
func TestMessagesAreHandedOff(t *testing.T) {
	t.Parallel()
	for name, produce := range map[string]func(a *testapp.App, id string) error{
		"a transaction": func(a *testapp.App, id string) error { return produceInTx(a, id, noMore) },
		"a call": func(a *testapp.App, id string) error {
			_, err := a.Producer.Produce(a.Context(), a.DB, order{ID: id})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testHandOffs(t, produce)
		})
	}
}

func testHandOffs(t *testing.T, produce func(a *testapp.App, id string) error) {
	a, h, r := handingOff(t, testdb.Postgres(t), testapp.Fast())
	untilHandedOff(a, h, "first")
	before := r.Stats()
	const n = 50
	for i := range n {
		if err := produce(a, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		testapp.Eventually(t, "it is consumed", a.Empty) // on a busy machine others would be a backlog, behind which nothing is handed off
	}
	direct := 0
	for i := range n {
		runs, handedOff := h.of(fmt.Sprint(i))
		if runs != 1 {
			t.Errorf("runs of message %d: got %d, want 1", i, runs)
		}
		if handedOff {
			direct++
		}
	}
	if after := r.Stats(); direct < n/2 || after.Claimed-before.Claimed < n {
		t.Errorf("messages that were handed off: got %d of %d, and %+v after %+v, want most of them", direct, n, after, before)
	}
	testapp.Eventually(t, "no claim is left", func() bool { return a.Count("SELECT count(*) FROM message_claims") == 0 })
}

// TestATransactionHandsOffAllItsMessages: of several consumers and of several calls, in one claim.
func TestATransactionHandsOffAllItsMessages(t *testing.T) {
	t.Parallel()
	a, h, _ := handingOff(t, testdb.Postgres(t), testapp.Fast())
	untilHandedOff(a, h, "first")
	testapp.Eventually(t, "several are handed off together", func() bool {
		prefix := time.Now().String()
		err := produceInTx(a, prefix+"a", func(ctx context.Context, tx bun.Tx) error {
			_, err := a.Producer.ProduceMany(ctx, tx, outbox.Item{Payload: order{ID: prefix + "b"}}, outbox.Item{Payload: order{ID: prefix + "c"}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		testapp.Eventually(t, "all is consumed", a.Empty)
		handed := 0
		for _, id := range []string{"a", "b", "c"} {
			if runs, handedOff := h.of(prefix + id); runs != 1 {
				t.Fatalf("runs of message %s: got %d, want 1", id, runs)
			} else if handedOff {
				handed++
			}
		}
		return handed == 3
	})
}

// TestWhatAConsumerProducesIsHandedOff: a chain of consumers needs no claim in between.
func TestWhatAConsumerProducesIsHandedOff(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	h := &handOffs{db: db, runs: make(map[string]int), born: make(map[string]bool)}
	var producer *outbox.Producer
	a := testapp.New(t, db,
		outbox.ConsumeTx("first", func(ctx context.Context, tx bun.Tx, r testapp.Refund) error {
			_, err := producer.Produce(ctx, tx, order{ID: r.ID})
			return err
		}),
		bus.Consume("c", h.run))
	producer = a.Producer
	a.Start(testapp.Fast())
	n := 0
	testapp.Eventually(t, "the second message is handed off", func() bool {
		n++
		id := fmt.Sprint(n)
		a.Produce(testapp.Refund{ID: id})
		testapp.Eventually(t, "all is consumed", a.Empty)
		runs, handedOff := h.of(id)
		if runs != 1 {
			t.Fatalf("runs of the second message: got %d, want 1", runs)
		}
		return handedOff
	})
}

// refusal is a reason for which a message is claimed as usual, or not committed.
type refusal struct {
	name    string
	options []bus.ConsumerOption
	produce []outbox.Option
	first   string // SQL before the message is produced
	then    string // SQL behind it
	undo    bool   // the function returns an error
	gone    bool   // the message is not committed
	rests   bool   // nothing is handed off for a while
}

var errUndo = errors.New("undo")

func refusals() []refusal {
	return []refusal{
		{name: "an order", options: []bus.ConsumerOption{bus.Ordered(bus.SkipPoisoned)}, produce: []outbox.Option{outbox.OrderingKey("k")}},
		{name: "a limit", options: []bus.ConsumerOption{bus.GlobalConcurrency(5)}},
		{name: "a rate", options: []bus.ConsumerOption{bus.RateLimit(1000, time.Second, 1000)}},
		{name: "priorities", options: []bus.ConsumerOption{bus.Prioritized(time.Minute)}},
		{name: "a delay", produce: []outbox.Option{outbox.Delay(10 * time.Millisecond)}},
		{name: "an insert id", produce: []outbox.Option{outbox.InsertID("once")}},
		{name: "a postponed message", then: "UPDATE consumer_messages SET available_after = now() + interval '1 second'"},
		{name: "a stricter isolation", first: "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"},
		{name: "an error of the function", undo: true, gone: true},
		{name: "a savepoint that is rolled back", first: "SAVEPOINT s", then: "ROLLBACK TO s", gone: true},
		{name: "a savepoint that is kept", first: "SAVEPOINT s", then: "RELEASE s"},
		{name: "ROLLBACK and BEGIN", then: "ROLLBACK; BEGIN", gone: true},
		{name: "COMMIT and BEGIN", then: "COMMIT; BEGIN"},
		{name: "a deleted message", then: "DELETE FROM consumer_messages", gone: true},
		{name: "another search_path", then: "SET LOCAL search_path TO pg_catalog", rests: true},
		{name: "a role without rights", then: "SET LOCAL ROLE pg_monitor", rests: true},
	}
}

// produceRefused produces an order in a transaction with what forbids its hand-off.
func produceRefused(a *testapp.App, c refusal, id string) error {
	return a.Producer.RunInTx(a.Context(), a.DB, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.ExecContext(ctx, cmp.Or(c.first, "SELECT 1")); err != nil {
			return err
		}
		if _, err := a.Producer.Produce(ctx, tx, order{ID: id}, c.produce...); err != nil {
			return err
		}
		if c.undo {
			return errUndo
		}
		_, err := tx.ExecContext(ctx, cmp.Or(c.then, "SELECT 1"))
		return err
	})
}

// TestWhatForbidsAHandOff: such a message is claimed as usual, one that is not committed does not
// run, and the next is handed off again.
func TestWhatForbidsAHandOff(t *testing.T) {
	t.Parallel()
	for _, c := range refusals() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a, h, _ := handingOff(t, testdb.Postgres(t), testapp.Fast(), c.options...)
			if len(c.options) == 0 {
				untilHandedOff(a, h, "before")
			}
			if err := produceRefused(a, c, "it"); err != nil && !errors.Is(err, errUndo) {
				t.Fatal(err)
			}
			if !c.gone {
				testapp.Eventually(t, "it ran", func() bool { runs, _ := h.of("it"); return runs > 0 })
			}
			testapp.Eventually(t, "all is consumed", a.Empty)
			if len(c.options) == 0 && !c.rests {
				untilHandedOff(a, h, "after")
			}
			if runs, handedOff := h.of("it"); handedOff || (runs > 0) == c.gone || runs > 1 {
				t.Errorf("got %d runs, handed off: %v, want %v", runs, handedOff, map[bool]string{true: "none", false: "one of a usual claim"}[c.gone])
			}
		})
	}
}

// TestAPausedConsumerIsHandedNothing: from the commit of the pause on.
func TestAPausedConsumerIsHandedNothing(t *testing.T) {
	t.Parallel()
	a, h, _ := handingOff(t, testdb.Postgres(t), testapp.Fast())
	untilHandedOff(a, h, "before")
	testapp.Eventually(t, "no claim is left", func() bool { return a.Count("SELECT count(*) FROM message_claims") == 0 })
	if err := a.Admin().Pause(t.Context(), a.DB, "c", admin.PauseNote{}); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := produceInTx(a, fmt.Sprint("paused-", i), noMore); err != nil {
			t.Fatal(err)
		}
		a.Produce(order{ID: fmt.Sprint("paused too-", i)})
	}
	if n := a.Count("SELECT count(*) FROM message_claims WHERE id < 0"); n > 0 {
		t.Errorf("claims of messages of a paused consumer: got %d, want none", n)
	}
	if err := a.Admin().Resume(t.Context(), a.DB, "c"); err != nil {
		t.Fatal(err)
	}
	testapp.Eventually(t, "all is consumed", a.Empty)
	untilHandedOff(a, h, "after")
}

// TestAPanicGivesTheRoomBack: as often as there is room.
func TestAPanicGivesTheRoomBack(t *testing.T) {
	t.Parallel()
	config := testapp.Fast()
	config.Concurrency = 2
	a, h, _ := handingOff(t, testdb.Postgres(t), config)
	untilHandedOff(a, h, "before")
	for range 3 * config.Concurrency {
		func() {
			defer func() { _ = recover() }()
			_ = produceInTx(a, "never", func(context.Context, bun.Tx) error { panic("as planned") })
		}()
	}
	untilHandedOff(a, h, "after")
	if runs, _ := h.of("never"); runs > 0 {
		t.Errorf("runs of a message whose transaction panicked: got %d, want none", runs)
	}
}

// TestNothingIsHandedOffPastABacklog: while older messages wait for a claim, newer ones do, too.
func TestNothingIsHandedOffPastABacklog(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	const old, n = 3000, 200
	var passed atomic.Int64
	h := &handOffs{db: db, runs: make(map[string]int), born: make(map[string]bool)}
	a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, o order) error {
		if !strings.HasPrefix(o.ID, "new-") {
			return nil
		}
		waiting := `SELECT count(*) FROM consumer_messages m WHERE payload NOT LIKE '%new-%' AND m.id NOT IN (SELECT unnest(message_ids) FROM message_claims)`
		var left int64
		if err := db.NewRaw(waiting).Scan(ctx, &left); err != nil {
			return err
		}
		if err := h.run(ctx, o); err != nil {
			return err
		}
		if _, handedOff := h.of(o.ID); handedOff && left > 0 {
			passed.Add(1)
		}
		return nil
	}))
	a.ProduceMany(old)
	config := testapp.Fast()
	config.Concurrency, config.BatchSize = 4, 100
	a.Start(config)
	for i := range n {
		if err := produceInTx(a, fmt.Sprint("new-", i), noMore); err != nil {
			t.Fatal(err)
		}
	}
	testapp.Eventually(t, "all is consumed", a.Empty)
	if passed.Load() > 0 {
		t.Errorf("messages that were handed off while older ones waited for a claim: got %d of %d, want none", passed.Load(), n)
	}
	untilHandedOff(a, h, "new-after")
}

// TestACallWaitsForNoLockOfClaims: where another transaction has locked the claims, messages are
// written without one.
func TestACallWaitsForNoLockOfClaims(t *testing.T) {
	t.Parallel()
	a, h, _ := handingOff(t, testdb.Postgres(t), testapp.Fast())
	untilHandedOff(a, h, "before")
	lock := testapp.Must[bun.Tx](t)(a.DB.BeginTx(t.Context(), nil))
	defer lock.Rollback() //nolint:errcheck // nothing is written
	testapp.OK(t, testapp.Second(lock.ExecContext(t.Context(), "LOCK TABLE message_claims IN ACCESS EXCLUSIVE MODE")))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for _, id := range []string{"one", "two"} {
		testapp.OK(t, testapp.Second(a.Producer.Produce(ctx, a.DB, order{ID: id})))
	}
	testapp.OK(t, lock.Rollback())
	testapp.Eventually(t, "all is consumed", a.Empty)
}
