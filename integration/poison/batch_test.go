package poison_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// TestRequeueInBatches goes on with a cursor past what stays poisoned, up to what was seen, and knows what
// has become of each message: also of those with keys, and under another name of their consumer.
func TestRequeueInBatches(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 12, testapp.Counting("c", &n, bus.Aliases("former")))
		ctx := t.Context()
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'former' WHERE id > 6")
		a.Exec("UPDATE poisoned_messages SET insert_id = CONCAT('k', id) WHERE id IN (2, 3, 8)")
		a.Exec("UPDATE poisoned_messages SET order_key = 'o', lane = 7, rank = id WHERE id IN (4, 5)")
		a.Exec("UPDATE poisoned_messages SET payload_type = 'other' WHERE id = 10")
		a.Produce(order{}, outbox.InsertID("k3"))
		a.Produce(order{}, outbox.InsertID("k8"))
		var before []poison.Message
		for id := range int64(12) {
			before = append(before, testapp.Must[poison.Message](t)(s.Get(ctx, db, id+1)))
		}
		var moved []poisoned.Moved
		var conflicts, unregistered int
		b := poisoned.Chunk{Filter: poison.Filter{Error: "no luck"}, UpTo: 11, Limit: 3}
		for range 5 {
			done := testapp.Must[poisoned.ChunkResult](t)(s.RequeueChunk(ctx, db, b))
			if done.Requeued+done.Conflicts > 3 || done.Requeued != len(done.Moved) {
				t.Errorf("batch: got %+v, want 3 at most", done)
			}
			moved, conflicts, unregistered = append(moved, done.Moved...), conflicts+done.Conflicts, unregistered+done.Unhandled
			if b.After = done.Last; b.After == 0 {
				break
			}
		}
		if b.After != 0 || conflicts != 2 || unregistered != 1 || len(moved) != 9 {
			t.Errorf("got a cursor at %d, %d conflicts, %d unregistered and %d moved, want the end, 2, 1 and 9", b.After, conflicts,
				unregistered, len(moved))
		}
		pending := make(map[int64]admin.Message)
		for _, m := range moved {
			pending[m.Old] = testapp.Must[admin.Message](t)(a.Admin().Get(ctx, db, m.New))
		}
		for _, m := range before {
			p, requeued := pending[m.ID]
			if want := !slices.Contains([]int64{3, 8, 12}, m.ID); requeued != want {
				t.Errorf("message %d: got requeued %t, want %t", m.ID, requeued, want)
			}
			if requeued && (p.MessageID != m.MessageID || p.Consumer != "c" || p.InsertID != m.InsertID || p.OrderingKey != m.OrderingKey) {
				t.Errorf("message %d: got %+v as what it has become", m.ID, p)
			}
		}
	})
}

// TestBatchesInACallersTransaction: a cursor that is kept in the same transaction is never at odds with
// what was changed.
func TestBatchesInACallersTransaction(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 10, testapp.Counting("c", &n))
		a.Exec("CREATE TABLE cursors (id BIGINT NOT NULL)")
		a.Exec("INSERT INTO cursors VALUES (0)")
		undo := errors.New("undo")
		step := func(fail error, change func(context.Context, bun.Tx, poisoned.Chunk) (int, int64, error)) (changed int) {
			err := db.RunInTx(t.Context(), nil, func(ctx context.Context, tx bun.Tx) error {
				b := poisoned.Chunk{UpTo: 10, Limit: 4}
				if _, err := tx.NewRaw("UPDATE cursors SET id = id").Exec(ctx); err != nil { // SQLite wants a write first
					return err
				}
				if err := tx.NewRaw("SELECT id FROM cursors").Scan(ctx, &b.After); err != nil {
					return err
				}
				n, last, err := change(ctx, tx, b)
				if err != nil {
					return err
				}
				changed = n
				if _, err := tx.NewRaw("UPDATE cursors SET id = ?", last).Exec(ctx); err != nil {
					return err
				}
				return fail
			})
			if !errors.Is(err, fail) {
				t.Fatal(err)
			}
			return changed
		}
		requeue := func(ctx context.Context, tx bun.Tx, b poisoned.Chunk) (int, int64, error) {
			done, err := s.RequeueChunk(ctx, tx, b)
			return done.Requeued, done.Last, err
		}
		discard := func(ctx context.Context, tx bun.Tx, b poisoned.Chunk) (int, int64, error) {
			return s.DiscardChunk(ctx, tx, b)
		}
		for _, test := range []struct {
			fail              error
			change            func(context.Context, bun.Tx, poisoned.Chunk) (int, int64, error)
			changed           int
			pending, poisoned int
			cursor            int
		}{
			{undo, requeue, 4, 0, 10, 0}, {nil, requeue, 4, 4, 6, 4}, {undo, discard, 4, 4, 6, 4}, {nil, discard, 4, 4, 2, 8},
			{nil, requeue, 2, 6, 0, 10}, {nil, discard, 0, 6, 0, 0},
		} {
			changed := step(test.fail, test.change)
			if pending, poisoned, cursor := len(a.Pending()), len(a.Poisoned()), a.Count("SELECT id FROM cursors"); changed != test.changed ||
				pending != test.pending || poisoned != test.poisoned || cursor != test.cursor {
				t.Errorf("got %d changed, %d pending, %d poisoned and a cursor at %d, want %+v", changed, pending, poisoned, cursor, test)
			}
		}
	})
}

func TestDiscardChunkGoesByTheFilter(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 10, testapp.Counting("c", &n))
		a.Exec("UPDATE poisoned_messages SET fingerprint = '1a' WHERE id < 8")
		b := poisoned.Chunk{Filter: poison.Filter{Fingerprint: poison.Unclassified}, After: 5, UpTo: 9, Limit: 500}
		discarded, last, err := s.DiscardChunk(t.Context(), db, b)
		if err != nil || discarded != 2 || last != 9 || len(a.Poisoned()) != 8 {
			t.Errorf("unclassified behind 5 and up to 9: got %d, the last %d, error %v, want 8 and 9", discarded, last, err)
		}
		b = poisoned.Chunk{Filter: poison.Filter{IDs: []int64{1, 3, 8}, Consumer: "c", Fingerprint: "1a"}, UpTo: 10, Limit: 500}
		if discarded, last, err = s.DiscardChunk(t.Context(), db, b); err != nil || discarded != 2 || last != 3 {
			t.Errorf("by id and fingerprint: got %d, the last %d, error %v, want 1 and 3", discarded, last, err)
		}
	})
}

// TestBriefAndBounded: what is listed, shown and counted for people is bounded.
func TestBriefAndBounded(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 5, testapp.Counting("c", &n))
		ctx := t.Context()
		a.Exec("UPDATE poisoned_messages SET payload = ?, fingerprint = '1a' WHERE id = 3", `{"id":"äöü"}`)
		brief, next, err := s.List(ctx, db, poison.Filter{}, admin.Page{Size: 4, Brief: true})
		if err != nil || len(brief) != 4 || next == nil {
			t.Fatalf("brief: got %d, next %v, error %v, want 4 and another page", len(brief), next, err)
		}
		rest, last, err := s.List(ctx, db, poison.Filter{}, *next)
		if err != nil || len(rest) != 1 || last != nil {
			t.Fatalf("brief: got %d, next %v, error %v, want the last", len(rest), last, err)
		}
		for _, m := range append(brief, rest...) {
			whole := testapp.Must[poison.Message](t)(s.Get(ctx, db, m.ID))
			if m.Payload != nil || m.Headers != nil || m.Errors != nil || m.PayloadBytes != 0 {
				t.Errorf("brief: got %+v, want nothing large", m)
			}
			whole.Payload, whole.Headers, whole.Errors, whole.PayloadBytes = nil, nil, nil, 0
			if m.Reason == "" || m.MessageID == uuid.Nil || m.Fingerprint != whole.Fingerprint || m.PoisonedAt != whole.PoisonedAt ||
				m.Attempts != 5 {
				t.Errorf("brief: got %+v, want %+v", m, whole)
			}
		}
		for limit, want := range map[int]string{0: "", 7: `{"id":"`, 8: `{"id":"`, 9: `{"id":"ä`, 15: `{"id":"äöü"}`,
			1 << 40: `{"id":"äöü"}`} {
			m := testapp.Must[poison.Message](t)(s.GetHead(ctx, db, 3, limit))
			if string(m.Payload) != want || m.PayloadBytes != 15 || len(m.Errors) != 1 || m.Headers["k"] != "v" {
				t.Errorf("head of %d bytes: got %q of %d, %+v", limit, m.Payload, m.PayloadBytes, m)
			}
		}
		if _, err := s.GetHead(ctx, db, 99, 1); !errors.Is(err, poison.ErrNotFound) {
			t.Errorf("head of nothing: got %v, want ErrNotFound", err)
		}
		for most, want := range map[int]int{1: 1, 4: 4, 5: 4, 100: 4} {
			if got := testapp.Must[int](t)(s.CountUpTo(ctx, db, poison.Filter{Fingerprint: poison.Unclassified}, most)); got != want {
				t.Errorf("count up to %d: got %d, want %d", most, got, want)
			}
		}
	})
}
