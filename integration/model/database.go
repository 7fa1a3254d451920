package model

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Database is a System that works through internal/store. Since its methods have
// no errors to return, they panic with them; rapid takes that for what it is, a
// failure of the run.
type Database struct {
	ctx      context.Context
	db       *bun.DB
	handle   bun.IDB // db, or the transaction under way
	store    *store.Store
	elapse   time.Duration
	messages map[uuid.UUID]int
	ids      map[Key]int64 // of all that a view has shown
	keys     map[int64]Key
	claims   map[int]int64 // by number
	number   map[int64]int
	// Of messages that have keys, also when they are gone:
	orderKey map[Key]string
	rank     map[Key]int64
}

var _ System = (*Database)(nil)

const payloadType = "p"

// epoch is when a run begins on its clock.
func epoch() time.Time { return time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC) }

// OpenDatabase prepares a database for any number of runs, each of which begins
// with Reset.
func OpenDatabase(ctx context.Context, db *bun.DB) (*Database, error) {
	s, err := store.For(db.Dialect().Name(), bus.Tables{})
	if err != nil {
		return nil, err
	}
	d := &Database{db: db, handle: db, store: s}
	d.ctx = store.WithClock(ctx, func() time.Time { return epoch().Add(d.elapse) })
	if err := s.Schema.Migrate(d.ctx, db); err != nil {
		return nil, err
	}
	_, err = db.NewRaw("CREATE TABLE effects (message bigint NOT NULL, consumer text NOT NULL)").Exec(ctx)
	return d, err
}

// Reset empties all tables. Deleting is quicker than truncating what is small.
func (d *Database) Reset() {
	d.elapse, d.messages = 0, make(map[uuid.UUID]int)
	d.ids, d.keys = make(map[Key]int64), make(map[int64]Key)
	d.claims, d.number = make(map[int]int64), make(map[int64]int)
	d.orderKey, d.rank = make(map[Key]string), make(map[Key]int64)
	tables := []string{
		"consumer_messages", "message_claims", "poisoned_messages", "effects", "message_gates", "message_slots", "message_rates",
		"paused_consumers", "scheduled_messages",
	}
	if d.AnyOrder() {
		tables = append(tables, "message_key_rates")
	}
	for _, table := range tables {
		_, err := d.db.NewRaw("DELETE FROM " + table).Exec(d.ctx)
		must(err)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Pass implements System.
func (d *Database) Pass(span time.Duration) { d.elapse += span }

// Produce implements System.
func (d *Database) Produce(p Produce) (written int) {
	var rows []store.NewMessage
	for _, part := range p.parts() {
		for _, consumer := range p.Consumers {
			row := store.NewMessage{
				MessageID: messageID(part.Message), ConsumerType: consumer, PayloadType: payloadType, Payload: "{}",
				InsertID: part.InsertID, Delay: part.Delay,
			}
			if rules := rulesOf(consumer); rules.Keyed {
				row.OrderKey, row.AnyOrder = p.OrderKey, rules.PerKey > 0
			}
			rows = append(rows, row)
		}
	}
	undo := errors.New("rolled back, as drawn")
	err := d.db.RunInTx(d.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if p.HandOff != "" {
			err := d.handOff(ctx, tx, p, rows)
			if err == nil && p.RolledBack {
				return undo
			}
			written = len(rows)
			return err
		}
		counts, err := d.store.Outbox.Insert(ctx, tx, rows)
		if err == nil && p.RolledBack {
			return undo
		}
		for _, part := range p.parts() {
			written += counts[messageID(part.Message)]
		}
		return err
	})
	if !errors.Is(err, undo) {
		must(err)
	}
	for _, part := range p.parts() {
		d.messages[messageID(part.Message)] = part.Message
	}
	return written
}

// HandsOff implements System.
func (d *Database) HandsOff() bool { return d.store.HandsOff() }

// handOff inserts rows and claims them.
func (d *Database) handOff(ctx context.Context, tx bun.Tx, p Produce, rows []store.NewMessage) error {
	ids, err := d.store.Outbox.MessageIDs(ctx, d.db, len(rows))
	if err != nil {
		return err
	}
	inserted, err := d.store.Outbox.InsertAs(ctx, tx, rows, ids)
	if err != nil || !inserted {
		return fmt.Errorf("inserted: %t, %w", inserted, err)
	}
	h := store.HandOff{Owner: p.HandOff, Lease: Lease, Messages: ids.IDs}
	claimed, err := d.store.Claims.HandOff(ctx, tx, h)
	if err != nil || !claimed {
		return fmt.Errorf("claimed: %t, %w", claimed, err)
	}
	if !p.RolledBack {
		n := len(d.claims) + 1
		d.claims[n], d.number[h.Claim()] = h.Claim(), n
	}
	return nil
}

func messageID(message int) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[8:], uint64(message)+1)
	return id
}

// Claim implements System.
func (d *Database) Claim(r Request) (keys []Key) {
	rules := rulesOf(r.Consumers[0])
	request := store.ClaimRequest{Owner: r.Owner, Lease: Lease, Select: r.Select, Solo: r.Solo, MaxBytes: 1 << 20}
	if r.Select != store.Clean || r.gated() {
		request.Limit = r.Limit
	}
	if r.Select == store.Clean { // what has crashed does not count
		request.Rate = rules.Rate
	}
	if rules.Keyed {
		return d.claim(d.askLanes(request, r, rules))
	}
	for i, consumer := range r.Consumers {
		want := store.Want{Consumer: consumer, Payload: payloadType, Limit: r.Limit}
		if len(r.After) > 0 && r.After[i] != (Place{}) {
			want.After = store.Position{At: epoch().Add(r.After[i].Due), ID: d.ids[r.After[i].Key]}
		}
		request.Wants = append(request.Wants, want)
	}
	return d.claim(request)
}

func (d *Database) claim(request store.ClaimRequest) (keys []Key) {
	c, err := d.store.Claims.Claim(d.ctx, d.db, request)
	must(err)
	if c.ID != 0 {
		n := len(d.claims) + 1
		d.claims[n], d.number[c.ID] = c.ID, n
	}
	for _, m := range c.Messages {
		keys = append(keys, d.keys[m.ID])
	}
	return keys
}

// Settle implements System.
func (d *Database) Settle(owner string, results []Result) (out Settled) {
	rows := make([]store.Result, len(results))
	for i, r := range results {
		rows[i] = store.Result{
			Claim: d.claims[r.Claim], Message: d.ids[r.Key], Outcome: r.Outcome, Delay: r.Delay, Errors: r.Errors, Reason: r.Reason,
		}
		if rows[i].Lane = d.lane(r.Key); rows[i].Lane != 0 {
			rows[i].Rank, rows[i].Parks = d.rank[r.Key], rulesOf(r.Key.Consumer).Parks
		}
	}
	settled, err := d.store.Claims.Settle(d.ctx, d.db, owner, Lease, rows)
	must(err)
	return Settled{Live: d.numbers(settled.Live), Applied: settled.Applied}
}

func (d *Database) numbers(ids []int64) (numbers []int) {
	for _, id := range ids {
		numbers = append(numbers, d.number[id])
	}
	slices.Sort(numbers)
	return numbers
}

func (d *Database) idsOf(claims []int) (ids []int64) {
	for _, n := range claims {
		ids = append(ids, d.claims[n])
	}
	return ids
}

// Finish implements System.
func (d *Database) Finish(owner string, claims []int) map[int]int {
	finished, err := d.store.Claims.Finish(d.ctx, d.db, owner, d.idsOf(claims))
	must(err)
	out := make(map[int]int)
	for _, f := range finished {
		out[d.number[f.Claim]] = f.Messages
	}
	return out
}

// Extend implements System.
func (d *Database) Extend(owner string) []int {
	held, err := d.store.Claims.Extend(d.ctx, d.db, owner, Lease)
	must(err)
	return d.numbers(held)
}

// Disclaim implements System.
func (d *Database) Disclaim(owner string, claims []int) {
	must(d.store.Claims.Disclaim(d.ctx, d.db, owner, d.idsOf(claims)))
}

// Recover implements System.
func (d *Database) Recover() store.Recovered {
	found, err := d.store.Claims.Recover(d.ctx, d.db, MaxCrashes)
	must(err)
	return found
}

// Transact implements System.
func (d *Database) Transact(t Transaction) bool {
	refused := errors.New("fenced, or rolled back as drawn")
	err := d.db.RunInTx(d.ctx, &sql.TxOptions{Isolation: d.isolation()}, func(ctx context.Context, tx bun.Tx) error {
		f := store.Fence{
			Owner: t.Owner, Idle: time.Minute,
			Messages: []store.Fenced{{Claim: d.claims[t.Claim], ID: d.ids[t.Key], Attempts: t.Attempts, Crashes: t.Crashes, Lane: d.lane(t.Key)}},
		}
		if held, err := d.store.Claims.Fence(ctx, tx, f); err != nil || len(held) == 0 {
			return errors.Join(err, refused)
		}
		if _, err := tx.NewRaw("INSERT INTO effects (message, consumer) VALUES (?, ?)", t.Key.Message, t.Key.Consumer).Exec(ctx); err != nil {
			return err
		}
		if removed, err := d.store.Claims.Remove(ctx, tx, store.Session{}, f.Messages[0].ID); err != nil || removed != 1 {
			return fmt.Errorf("remove: got %d, error %w, want 1", removed, err)
		}
		if t.RolledBack {
			return refused
		}
		return nil
	})
	if err != nil && err.Error() != refused.Error() { // refused alone
		panic(err)
	}
	return err == nil
}

func (d *Database) isolation() sql.IsolationLevel {
	if d.store.RowLocks() {
		return sql.LevelReadCommitted
	}
	return sql.LevelDefault
}

// View implements System.
func (d *Database) View() View {
	v := newView()
	d.readMessages(v)
	d.readClaims(v)
	d.readEffects(v)
	d.readBounds(v)
	return v
}

func (d *Database) readEffects(v View) {
	var effects []struct {
		Message  int
		Consumer string
	}
	must(d.handle.NewRaw("SELECT message, consumer FROM effects").Scan(d.ctx, &effects))
	for _, e := range effects {
		v.Effects[Key{e.Message, e.Consumer}]++
	}
}
