package outbox_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// withEffects makes a table for what consumers do.
func withEffects(a *app) *app {
	a.Exec("CREATE TABLE effects (id text NOT NULL, attempt int NOT NULL)")
	return a
}

func addEffect(ctx context.Context, tx bun.IDB, o order) error {
	m, _ := bus.MessageFromContext(ctx)
	_, err := tx.NewRaw("INSERT INTO effects (id, attempt) VALUES (?, ?)", o.ID, m.Attempt).Exec(ctx)
	return err
}

// Promise: exactly-once
func TestTransactionalEffectsCommitWithTheRemoval(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var inside atomic.Int64
		var a *app
		a = withEffects(testapp.New(t, db, outbox.ConsumeTx("stock", func(ctx context.Context, tx bun.Tx, o order) error {
			if err := addEffect(ctx, tx, o); err != nil {
				return err
			}
			// Seen from outside, neither the effect nor the removal has happened.
			if n := a.Count("SELECT (SELECT count(*) FROM effects WHERE id = ?) + 1 - (SELECT count(*) FROM consumer_messages WHERE payload LIKE ?)",
				o.ID, `{"id":"`+o.ID+`",%`); n != 0 {
				t.Errorf("message %s: %d of effect and removal are visible before the commit", o.ID, n)
			}
			inside.Add(1)
			return nil
		}, bus.Timeout(3*time.Second))))
		for i := range 20 {
			a.Produce(order{ID: fmt.Sprint(i)})
		}
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "all are consumed", a.Empty)
		r.MustStop()
		if n := a.Count("SELECT count(DISTINCT id) FROM effects"); n != 20 || a.Count("SELECT count(*) FROM effects") != 20 ||
			inside.Load() != 20 {
			t.Errorf("effects: got %d, want 20, one each", n)
		}
	})
}

// The swallowed error of a statement is seen at the commit. SQLite does not abort a transaction over it.
func TestAStatementWhoseFailureIsSwallowedFailsTheRun(t *testing.T) {
	t.Parallel()
	a := withEffects(testapp.New(t, testdb.Postgres(t), outbox.ConsumeTx("stock", func(ctx context.Context, tx bun.Tx, o order) error {
		if m, _ := bus.MessageFromContext(ctx); m.Attempt < 3 {
			_, _ = tx.NewRaw("INSERT INTO nowhere VALUES (1)").Exec(ctx)
			return nil
		}
		return addEffect(ctx, tx, o)
	}, bus.Timeout(3*time.Second))))
	a.Produce(order{ID: "1"})
	a.Start(testapp.Fast())
	testapp.Eventually(t, "the message is consumed", a.Empty)
	if n := a.Count("SELECT attempt FROM effects"); n != 3 {
		t.Errorf("effect: got attempt %d, want only that of attempt 3", n)
	}
}

func TestProduceInsideATransactionalConsumer(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var refunds atomic.Int64
		var a *app
		a = testapp.New(t, db,
			outbox.ConsumeTx("orders", func(ctx context.Context, tx bun.Tx, o order) error {
				if _, err := a.Producer.Produce(ctx, tx, refund{ID: o.ID}); err != nil {
					return err
				}
				if m, _ := bus.MessageFromContext(ctx); m.Attempt == 1 {
					return errors.New("rolls the refund back")
				}
				return nil
			}, bus.Timeout(3*time.Second)),
			bus.Consume("refunds", func(context.Context, refund) error { refunds.Add(1); return nil }))
		a.Produce(order{ID: "1"})
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "everything is consumed", func() bool { return refunds.Load() > 0 && a.Empty() })
		r.MustStop()
		if got := refunds.Load(); got != 1 {
			t.Errorf("refunds: got %d, want 1: the first attempt's was rolled back", got)
		}
	})
}

func TestFencedTransactionalConsumerDoesNotRun(t *testing.T) {
	t.Parallel()
	dsn := testdb.PostgresDSN(t)
	thief := testdb.OpenPostgres(t, dsn)
	var attempts []int
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), outbox.ConsumeTx("stock", func(ctx context.Context, _ bun.Tx, _ order) error {
		m, _ := bus.MessageFromContext(ctx)
		attempts = append(attempts, m.Attempt)
		return nil
	}))
	// Right before the fence the claim is taken away, as a recovery would.
	a.DB = a.DB.WithQueryHook(&beforeOnce{match: "FOR UPDATE OF m", do: func() {
		if _, err := thief.NewRaw("DELETE FROM message_claims").Exec(context.Background()); err != nil {
			t.Error(err)
		}
		if _, err := thief.NewRaw("UPDATE consumer_messages SET attempts = 1").Exec(context.Background()); err != nil {
			t.Error(err)
		}
	}})
	a.Produce(order{ID: "1"})
	r := a.Start(testapp.Fast())
	testapp.Eventually(t, "the message is consumed", a.Empty)
	r.MustStop()
	if !slices.Equal(attempts, []int{2}) {
		t.Errorf("runs were attempts %v, want only attempt 2: the fenced run must not start", attempts)
	}
}

// TestNoTransactionalRunBeginsAfterItsLease: the process stands still after the fence, and renews nothing.
func TestNoTransactionalRunBeginsAfterItsLease(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	h := standsStill{match: "FOR UPDATE OF m", lapse: 3 * time.Second}
	a := testapp.New(t, testdb.Postgres(t), outbox.ConsumeTx("c", func(context.Context, bun.Tx, order) error {
		ran.Store(h.fences.Load())
		return nil
	}))
	a.Produce(order{ID: "1"})
	b := *a
	b.DB = a.DB.WithQueryHook(&h)
	config := testapp.Fast()
	config.LeaseDuration = time.Second
	r := b.Start(config)
	testapp.Eventually(t, "the message is consumed", a.Empty)
	r.MustStop()
	if ran.Load() < 2 {
		t.Errorf("got it run after fence %d, want the first run refused, and another after another fence", ran.Load())
	}
}

// standsStill keeps all statements back for a while after the first one with a text in it.
type standsStill struct {
	match    string
	lapse    time.Duration
	fences   atomic.Int64
	still    sync.RWMutex
	prepared testdb.Prepared
}

func (h *standsStill) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context {
	h.still.RLock()
	defer h.still.RUnlock()
	return ctx
}

func (h *standsStill) AfterQuery(_ context.Context, event *bun.QueryEvent) {
	if strings.Contains(h.prepared.Text(event.Query), h.match) && h.fences.Add(1) == 1 {
		h.still.Lock()
		defer h.still.Unlock()
		<-time.After(h.lapse)
	}
}

// beforeOnce does something before the first query with a text in it.
type beforeOnce struct {
	match    string
	do       func()
	once     sync.Once
	prepared testdb.Prepared
}

func (h *beforeOnce) BeforeQuery(ctx context.Context, event *bun.QueryEvent) context.Context {
	if strings.Contains(h.prepared.Text(event.Query), h.match) {
		h.once.Do(h.do)
	}
	return ctx
}

func (h *beforeOnce) AfterQuery(context.Context, *bun.QueryEvent) {}

func TestAbandonedTransactionCannotCommit(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	gate, late := make(chan struct{}), make(chan error, 1)
	application := withEffects(testapp.New(t, db, outbox.ConsumeTx("deaf", func(ctx context.Context, tx bun.Tx, o order) error {
		m, _ := bus.MessageFromContext(ctx)
		if m.Attempt > 1 {
			return addEffect(ctx, tx, o)
		}
		<-gate
		_, err := tx.NewRaw("INSERT INTO effects (id, attempt) VALUES ('late', 1)").Exec(context.WithoutCancel(ctx))
		late <- err
		return nil
	}, bus.Timeout(500*time.Millisecond))))
	application.Produce(order{ID: "1"})
	r := application.Start(testapp.Fast())
	testapp.Eventually(t, "the retry is consumed", application.Empty)
	close(gate)
	if err := <-late; err == nil || !strings.Contains(err.Error(), "transaction has already been committed or rolled back") {
		t.Errorf("statement of the abandoned handler: got %v, want its transaction gone", err)
	}
	r.MustStop()
	if n := application.Count("SELECT count(*) FROM effects"); n != 1 {
		t.Errorf("effects: got %d, want only the retry's", n)
	}
}
