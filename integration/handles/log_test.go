package handles_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

type moved struct {
	Amount int `json:"amount"`
}

func (moved) PayloadType() string { return "account.moved" }

type state struct{ Balance int }

func account() decider.Decider[state, int, moved] {
	return decider.Decider[state, int, moved]{
		Category:  "account",
		Decide:    func(_ context.Context, _ state, amount int) ([]moved, error) { return []moved{{amount}}, nil },
		Evolve:    func(s state, e moved) state { return state{s.Balance + e.Amount} },
		Snapshots: decider.Snapshots{Every: 2},
	}
}

// watcher reads in the transaction in which events are appended, behind a savepoint of Bun's.
type watcher struct{ seen *int }

func (watcher) InlineName() string { return "watcher" }

func (watcher) Handles(string) bool { return true }

func (w watcher) ApplyInline(ctx context.Context, tx bun.Tx, events []eventlog.RecordedEvent) error {
	return tx.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		*w.seen += len(events)
		_, err := tx.NewRaw("SELECT 1").Exec(ctx)
		return err
	})
}

func TestEventsAreAppendedInAnyTransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, db *bun.DB, w world) {
		if db.Dialect().Name() != dialect.MySQL { // it has no event log
			appends(t, db, w)
		}
	})
}

func appends(t *testing.T, db *bun.DB, w world) {
	types := must(eventlog.NewTypes(eventlog.Event[moved]()))(t)
	registry := must(bus.RegistryConfig{Events: types, Dialect: db.Dialect()}.NewRegistry())(t)
	must(0, outbox.Migrate(t.Context(), db, registry.Tables()))(t)
	producer := must(outbox.NewProducer(registry, outbox.ProducerConfig{}))(t)
	seen := 0
	log := must(eventlog.NewLog(registry, producer, eventlog.LogConfig{Inline: []eventlog.Inline{watcher{&seen}}}))(t)
	d, ctx := account(), t.Context()
	for _, end := range []func(transaction) error{transaction.Rollback, transaction.Commit} {
		tx := w.begin(t, db)
		must(log.Append(ctx, tx, "account-1", eventlog.NoStream, moved{1}))(t)
		if _, err := log.Append(ctx, tx, "account-1", eventlog.NoStream, moved{1}); err == nil {
			t.Error("append at the wrong version: got no error, want a conflict")
		} else if _, ok := errors.AsType[*eventlog.ConflictError](err); !ok {
			t.Errorf("append at the wrong version: got %v, want a conflict", err)
		}
		for range 2 {
			_, _, err := decider.Handle(ctx, log, tx, d, "1", 10)
			must(0, err)(t)
		}
		got, version, err := decider.Load(ctx, log, tx, d, "1")
		if must(0, err)(t); got.Balance != 21 || version != 3 {
			t.Errorf("in the transaction: got balance %d at version %d, want 21 at 3", got.Balance, version)
		}
		must(0, decider.Verify(ctx, log, tx, d, "1"))(t)
		must(log.Append(ctx, tx, "account-2", eventlog.NoStream, moved{1}))(t)
		must(0, log.Tombstone(ctx, tx, "account-2"))(t)
		must(0, end(tx))(t)
	}
	got, version, err := decider.Load(ctx, log, db, d, "1")
	if must(0, err)(t); got.Balance != 21 || version != 3 {
		t.Errorf("after the commit: got balance %d at version %d, want 21 at 3", got.Balance, version)
	}
	if _, _, err := decider.Load(ctx, log, db, d, "2"); !errors.Is(err, eventlog.ErrTombstoned) {
		t.Errorf("the tombstoned stream: got %v, want ErrTombstoned", err)
	}
	if seen != 2*5 {
		t.Errorf("the inline projection has seen %d events, want 10", seen)
	}
	if _, err := log.Append(ctx, db, "account-3", eventlog.NoStream, moved{1}); err == nil {
		t.Error("append without a transaction: got no error")
	}
}
