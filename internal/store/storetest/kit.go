package storetest

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	lease   = 30 * time.Second
	payload = "p" // the payload type of most messages
	ample   = 1 << 30
)

// epoch is when a case begins on its clock.
func epoch() time.Time { return time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC) }

// kit is what one case works with: a database of its own and a clock of its own.
type kit struct {
	*testing.T
	ctx    context.Context
	db     *bun.DB
	store  *store.Store
	tables bus.Tables
	elapse *atomic.Int64 // nanoseconds since the epoch on the case's clock
	made   *atomic.Uint64
}

func newKit(t *testing.T, db *bun.DB) *kit {
	t.Helper()
	k := &kit{T: t, db: db, elapse: new(atomic.Int64), made: new(atomic.Uint64)}
	k.ctx = store.WithClock(t.Context(), func() time.Time { return epoch().Add(time.Duration(k.elapse.Load())) })
	k = k.with(bus.Tables{})
	k.migrate()
	return k
}

// with returns the kit for other tables, which it does not create.
func (k *kit) with(tables bus.Tables) *kit {
	k.Helper()
	s, err := store.For(k.db.Dialect().Name(), tables)
	if err != nil {
		k.Fatalf("store for %+v: %v", tables, err)
	}
	other := *k
	other.store, other.tables = s, tables
	return &other
}

func (k *kit) migrate() {
	k.Helper()
	k.must("migrate", k.store.Schema.Migrate(k.ctx, k.db))
}

func (k *kit) must(what string, err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("%s: got error %v, want none", what, err)
	}
}

// equal reports a difference; nothing and an empty list are the same.
func equal[T any](k *kit, what string, got, want T) {
	k.Helper()
	if g, w := reflect.ValueOf(got), reflect.ValueOf(want); g.Kind() == reflect.Slice && g.Len() == 0 && w.Len() == 0 {
		return
	}
	if !reflect.DeepEqual(got, want) {
		k.Errorf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// pass moves the clock.
func (k *kit) pass(d time.Duration) { k.elapse.Add(int64(d)) }

// message makes a row to be inserted, with a message id of its own.
func (k *kit) message(consumer string) store.NewMessage {
	m := store.NewMessage{ConsumerType: consumer, PayloadType: payload, Payload: "{}"}
	binary.BigEndian.PutUint64(m.MessageID[8:], k.made.Add(1))
	return m
}

func (k *kit) insert(rows ...store.NewMessage) map[uuid.UUID]int {
	k.Helper()
	written, err := k.store.Outbox.Insert(k.ctx, k.db, rows)
	k.must("insert", err)
	return written
}

// add inserts messages of a consumer that are due, and returns their ids.
func (k *kit) add(consumer string, n int) []int64 {
	k.Helper()
	var before int64
	for _, m := range k.messages() {
		before = max(before, m.ID)
	}
	rows := make([]store.NewMessage, n)
	for i := range rows {
		rows[i] = k.message(consumer)
	}
	k.insert(rows...)
	var ids []int64
	for _, m := range k.messages() {
		if m.ID > before {
			ids = append(ids, m.ID)
		}
	}
	if len(ids) != n {
		k.Fatalf("messages added: got %d, want %d", len(ids), n)
	}
	return ids
}

// want asks for messages of a consumer.
func want(consumer string, limit int) store.Want {
	return store.Want{Consumer: consumer, Payload: payload, Limit: limit}
}

// request asks for clean messages.
func request(owner string, wants ...store.Want) store.ClaimRequest {
	return store.ClaimRequest{Owner: owner, Lease: lease, Wants: wants, MaxBytes: ample}
}

// crashed asks for messages that have crashed.
func crashed(owner string, selection store.Selection, limit int, wants ...store.Want) store.ClaimRequest {
	r := request(owner, wants...)
	r.Select, r.Limit, r.Solo = selection, limit, selection == store.Killers
	return r
}

func (k *kit) claim(r store.ClaimRequest) store.Claim {
	k.Helper()
	c, err := k.store.Claims.Claim(k.ctx, k.db, r)
	k.must("claim", err)
	return c
}

// take claims messages of one consumer, exactly these.
func (k *kit) take(owner, consumer string, ids ...int64) store.Claim {
	k.Helper()
	c := k.claim(request(owner, want(consumer, len(ids))))
	if got := idsOf(c); !slices.Equal(got, ids) {
		k.Fatalf("claim of %s: got messages %v, want %v", owner, got, ids)
	}
	return c
}

func idsOf(c store.Claim) []int64 {
	var ids []int64
	for _, m := range c.Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// results gives messages of a claim the same outcome.
func results(c store.Claim, outcome store.Outcome, ids ...int64) []store.Result {
	var out []store.Result
	for _, id := range ids {
		out = append(out, store.Result{Claim: c.ID, Message: id, Outcome: outcome})
	}
	return out
}

func (k *kit) settle(owner string, results ...store.Result) store.Settled {
	k.Helper()
	settled, err := k.store.Claims.Settle(k.ctx, k.db, owner, lease, results)
	k.must("settle", err)
	slices.Sort(settled.Live)
	return settled
}

func (k *kit) finish(owner string, claims ...int64) []store.Finished {
	k.Helper()
	finished, err := k.store.Claims.Finish(k.ctx, k.db, owner, claims)
	k.must("finish", err)
	slices.SortFunc(finished, func(a, b store.Finished) int { return int(a.Claim - b.Claim) })
	return finished
}

func (k *kit) extend(owner string) []int64 {
	k.Helper()
	held, err := k.store.Claims.Extend(k.ctx, k.db, owner, lease)
	k.must("extend", err)
	slices.Sort(held)
	return held
}

func (k *kit) recover(maxCrashes int) store.Recovered {
	k.Helper()
	recovered, err := k.store.Claims.Recover(k.ctx, k.db, maxCrashes)
	k.must("recover", err)
	return recovered
}

// crash lets an owner vanish with every due message of the consumer, until each
// has crashed that many times.
func (k *kit) crash(consumer string, times int) {
	k.Helper()
	for i := range times {
		r := crashed("vanishing", store.Selection(min(i, 2)), 1000, want(consumer, 1000))
		r.Solo = true
		if c := k.claim(r); c.ID == 0 {
			k.Fatalf("crash %d of %s: got no message to claim, want some", i+1, consumer)
		}
		k.pass(lease + time.Second)
		k.recover(100)
	}
}

// inTx runs a transaction of the kind that consumers get.
func (k *kit) inTx(fn func(ctx context.Context, tx bun.Tx) error) error {
	return k.db.RunInTx(k.ctx, readCommitted(k), fn)
}

// readCommitted are the options of a transaction; SQLite has none.
func readCommitted(k *kit) *sql.TxOptions {
	if !k.store.RowLocks() {
		return nil
	}
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

// together runs the function in n goroutines that start at the same moment, and
// returns their errors.
func together(n int, run func(i int) error) []error {
	errs := make([]error, n)
	gate := make(chan struct{})
	var ready, done sync.WaitGroup
	for i := range n {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-gate
			errs[i] = run(i)
		})
	}
	ready.Wait()
	close(gate)
	done.Wait()
	return slices.DeleteFunc(errs, func(err error) bool { return err == nil })
}

// span is an instant as the time since the case's epoch.
func span(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	if d := t.Sub(epoch()); d.Abs() < 100*365*24*time.Hour {
		return fmt.Sprint(d)
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// now is the case's clock as a span.
func (k *kit) now() string { return k.in(0) }

// in is a time from now as a span.
func (k *kit) in(d time.Duration) string { return fmt.Sprint(time.Duration(k.elapse.Load()) + d) }
