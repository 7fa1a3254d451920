package model

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
	ctx    context.Context
	db     *bun.DB
	store  *store.Store
	elapse time.Duration
	ids    map[Key]int64
	keys   map[int64]Key
	claims map[int]int64 // by number
	number map[int64]int
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
	d := &Database{db: db, store: s}
	d.ctx = store.WithClock(ctx, func() time.Time { return epoch().Add(d.elapse) })
	if err := s.Migrate(d.ctx, db); err != nil {
		return nil, err
	}
	_, err = db.NewRaw("CREATE TABLE effects (message bigint NOT NULL, consumer text NOT NULL)").Exec(ctx)
	return d, err
}

// Reset empties all tables. Deleting is quicker than truncating what is small.
func (d *Database) Reset() {
	d.elapse = 0
	d.ids, d.keys = make(map[Key]int64), make(map[int64]Key)
	d.claims, d.number = make(map[int]int64), make(map[int64]int)
	for _, table := range []string{"consumer_messages", "message_claims", "poisoned_messages", "effects"} {
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
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], uint64(p.Message)+1)
	rows := make([]store.NewMessage, len(p.Consumers))
	for i, consumer := range p.Consumers {
		rows[i] = store.NewMessage{MessageID: id, ConsumerType: consumer, PayloadType: payloadType, Payload: "{}", InsertID: p.InsertID, Delay: p.Delay}
	}
	undo := errors.New("rolled back, as drawn")
	err := d.db.RunInTx(d.ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		counts, err := d.store.Insert(ctx, tx, rows)
		if err == nil && p.RolledBack {
			return undo
		}
		written = counts[id]
		return err
	})
	if !errors.Is(err, undo) {
		must(err)
	}
	var found []struct {
		ID           int64
		ConsumerType string
	}
	must(d.db.NewRaw("SELECT id, consumer_type FROM consumer_messages WHERE message_id = ?", id).Scan(d.ctx, &found))
	for _, row := range found {
		key := Key{p.Message, row.ConsumerType}
		d.ids[key], d.keys[row.ID] = row.ID, key
	}
	return written
}

// Claim implements System.
func (d *Database) Claim(r Request) (keys []Key) {
	request := store.ClaimRequest{Owner: r.Owner, Lease: Lease, Select: r.Select, Solo: r.Solo, MaxBytes: 1 << 20}
	if r.Select != store.Clean {
		request.Limit = r.Limit
	}
	for i, consumer := range r.Consumers {
		want := store.Want{Consumer: consumer, Payload: payloadType, Limit: r.Limit}
		if len(r.After) > 0 && r.After[i] != (Place{}) {
			want.After = store.Position{At: epoch().Add(r.After[i].Due), ID: d.ids[r.After[i].Key]}
		}
		request.Wants = append(request.Wants, want)
	}
	c, err := d.store.Claim(d.ctx, d.db, request)
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
		rows[i] = store.Result{Claim: d.claims[r.Claim], Message: d.ids[r.Key], Outcome: r.Outcome, Delay: r.Delay, Errors: r.Errors, Reason: r.Reason}
	}
	settled, err := d.store.Settle(d.ctx, d.db, owner, Lease, rows)
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
	finished, err := d.store.Finish(d.ctx, d.db, owner, d.idsOf(claims))
	must(err)
	out := make(map[int]int)
	for _, f := range finished {
		out[d.number[f.Claim]] = f.Messages
	}
	return out
}

// Extend implements System.
func (d *Database) Extend(owner string) []int {
	held, err := d.store.Extend(d.ctx, d.db, owner, Lease)
	must(err)
	return d.numbers(held)
}

// Disclaim implements System.
func (d *Database) Disclaim(owner string, claims []int) {
	must(d.store.Disclaim(d.ctx, d.db, owner, d.idsOf(claims)))
}

// Recover implements System.
func (d *Database) Recover() store.Recovered {
	found, err := d.store.Recover(d.ctx, d.db, MaxCrashes)
	must(err)
	return found
}

// Transact implements System.
func (d *Database) Transact(t Transaction) bool {
	refused := errors.New("fenced, or rolled back as drawn")
	err := d.db.RunInTx(d.ctx, &sql.TxOptions{Isolation: d.isolation()}, func(ctx context.Context, tx bun.Tx) error {
		f := store.Fence{Owner: t.Owner, Idle: time.Minute, Messages: []store.Fenced{{Claim: d.claims[t.Claim], ID: d.ids[t.Key], Attempts: t.Attempts, Crashes: t.Crashes}}}
		if held, err := d.store.Fence(ctx, tx, f); err != nil || len(held) == 0 {
			return errors.Join(err, refused)
		}
		if _, err := tx.NewRaw("INSERT INTO effects (message, consumer) VALUES (?, ?)", t.Key.Message, t.Key.Consumer).Exec(ctx); err != nil {
			return err
		}
		if removed, err := d.store.Remove(ctx, tx, store.Session{}, f.Messages[0].ID); err != nil || removed != 1 {
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
	var effects []struct {
		Message  int
		Consumer string
	}
	must(d.db.NewRaw("SELECT message, consumer FROM effects").Scan(d.ctx, &effects))
	for _, e := range effects {
		v.Effects[Key{e.Message, e.Consumer}]++
	}
	return v
}

// readMessages reads pending and poisoned messages in one go.
func (d *Database) readMessages(v View) {
	var rows []struct {
		ID             int64
		AvailableAfter store.Moment
		Attempts       int
		Crashes        int
		Errors         string
		InsertID       string
		PoisonedAt     store.Moment
		Reason         string
		Poisoned       bool
	}
	columns := "id, available_after, attempts, crashes, errors, insert_id, "
	must(d.db.NewRaw("SELECT "+columns+"available_after AS poisoned_at, '' AS reason, false AS poisoned FROM consumer_messages"+
		" UNION ALL SELECT "+columns+"poisoned_at, reason, true FROM poisoned_messages").Scan(d.ctx, &rows))
	for _, r := range rows {
		key, known := d.keys[r.ID]
		if !known {
			panic(fmt.Sprintf("a message that nobody produced: %+v", r))
		}
		row := Row{Due: r.AvailableAfter.Sub(epoch()), Attempts: r.Attempts, Crashes: r.Crashes, Errors: r.Errors, InsertID: r.InsertID}
		if r.Poisoned {
			v.Poisoned[key] = Poisoned{Row: row, At: r.PoisonedAt.Sub(epoch()), Reason: r.Reason}
		} else {
			v.Rows[key] = row
		}
	}
}

func (d *Database) readClaims(v View) {
	var claims []struct {
		ID          int64
		Owner       string
		Solo        bool
		LeasedUntil store.Moment
		MessageIDs  string `bun:"message_ids"`
	}
	must(d.db.NewRaw("SELECT id, owner, solo, leased_until, message_ids FROM message_claims").Scan(d.ctx, &claims))
	for _, c := range claims {
		claim := Claim{Owner: c.Owner, Solo: c.Solo, Until: c.LeasedUntil.Sub(epoch())}
		for text := range strings.SplitSeq(strings.Trim(c.MessageIDs, "{}[]"), ",") { // an array, or JSON
			id, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			must(err)
			claim.Held = append(claim.Held, d.keys[id])
		}
		slices.SortFunc(claim.Held, compareKeys)
		v.Claims[d.number[c.ID]] = claim
	}
}
