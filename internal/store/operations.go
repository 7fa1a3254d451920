package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Operation is a row of message_operations: a change that a person has requested.
type Operation struct {
	ID          int64          `bun:"id"`
	Kind        string         `bun:"kind"`
	Actor       string         `bun:"actor"`
	Reason      string         `bun:"reason"`
	Target      []byte         `bun:"target"`  // JSON
	Preview     []byte         `bun:"preview"` // JSON
	State       string         `bun:"state"`
	Rate        int64          `bun:"rate"`     // messages per second
	Canary      int64          `bun:"canary"`   // messages that go first
	Canaries    []byte         `bun:"canaries"` // JSON: which messages those were
	AfterID     int64          `bun:"after_id"` // how far it has come
	UpToID      int64          `bun:"up_to_id"` // where it ends
	Changed     int64          `bun:"changed"`
	Skipped     int64          `bun:"left_alone"` // messages that could not be changed
	Note        string         `bun:"note"`       // why it has stopped
	LeasedBy    string         `bun:"leased_by"`
	LeasedUntil dialect.Moment `bun:"leased_until"`
	Deaths      int64          `bun:"deaths"` // processes in a row that died while running it
	CreatedAt   dialect.Moment `bun:"created_at"`
	StartsAt    dialect.Moment `bun:"starts_at"`
	FinishedAt  dialect.Moment `bun:"finished_at"`
	Now         dialect.Moment `bun:"now"` // when the row was read
}

// MaxActor bounds the bytes kept of an operation's actor.
const MaxActor = 255

const (
	operationsKept = 90 * 24 * time.Hour
	maxReason      = 2000 // bytes of what people write

	selectOperations = `SELECT id, kind, actor, reason, target, preview, state, rate, canary, canaries, after_id, up_to_id, changed, left_alone, note,
  leased_by, leased_until, deaths, created_at, starts_at, finished_at, {now} AS now FROM {operations} WHERE `
)

// Add writes an operation, created now, and returns its id. With finished it is finished,
// too.
func (s *OperationStore) Add(ctx context.Context, db bun.IDB, o Operation, finished bool) (id int64, err error) {
	end := "NULL"
	if finished {
		end = "{now}"
	}
	return s.dialect.InsertID(
		ctx,
		db,
		`INSERT INTO {operations} (kind, actor, reason, target, preview, state, rate, canary, canaries, after_id, up_to_id, changed, left_alone, note, created_at, finished_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now}, `+end+`)`,
		o.Kind,
		errorlog.Clean(o.Actor, MaxActor),
		errorlog.Clean(o.Reason, maxReason),
		string(o.Target),
		string(o.Preview),
		o.State,
		o.Rate,
		o.Canary,
		string(o.Canaries),
		o.AfterID,
		o.UpToID,
		o.Changed,
		o.Skipped,
		errorlog.Clean(o.Note, maxReason),
	)
}

// OperationFilter selects operations; zero fields select all.
type OperationFilter struct {
	ID       int64
	IDs      []int64
	Before   int64 // only those with smaller ids
	States   []string
	Kinds    []string
	LeasedBy string
	// Free selects those that are due to start and have no lease.
	Free bool
	// Idle is a state in which an operation runs nothing, so that no process dies of it.
	Idle string
	// OldestFirst lists them in that order.
	OldestFirst bool
}

func (f OperationFilter) terms() (t terms) {
	t.add(f.ID != 0, "id = ?", f.ID)
	t.add(len(f.IDs) > 0, "id IN (?)", bun.List(f.IDs))
	t.add(f.Before != 0, "id < ?", f.Before)
	t.add(len(f.States) > 0, "state IN (?)", bun.List(f.States))
	t.add(len(f.Kinds) > 0, "kind IN (?)", bun.List(f.Kinds))
	t.add(f.LeasedBy != "", "leased_by = ?", f.LeasedBy)
	t.add(f.Free, "starts_at <= {now} AND (leased_until IS NULL OR leased_until < {now})")
	return t
}

// ForgetPlans deletes operations that have been in a state for kept, the oldest first, and at most
// limit of them.
func (s *OperationStore) ForgetPlans(ctx context.Context, db bun.IDB, state string, kept time.Duration, limit int) error {
	return retry(ctx, db, func(db bun.IDB) error {
		var ids []int64
		err := s.names.Query(ctx, db, `SELECT id FROM {operations} WHERE state = ? AND created_at < `+s.names.After(ctx, -kept)+` ORDER BY id LIMIT ?`, state, limit).
			Scan(ctx, &ids)
		if err != nil || len(ids) == 0 {
			return err
		}
		return s.names.Exec(ctx, db, `DELETE FROM {operations} WHERE id IN (?) AND state = ?`, bun.List(ids), state)
	})
}

// ForgetPlan deletes an operation if it is in a state.
func (s *OperationStore) ForgetPlan(ctx context.Context, db bun.IDB, id int64, state string) error {
	return s.exec(ctx, db, `DELETE FROM {operations} WHERE id = ? AND state = ?`, id, state)
}

// ConsumersOf returns the stored consumer types of pending messages.
func (s *OperationStore) ConsumersOf(ctx context.Context, db bun.IDB, ids []int64) (names []string, err error) {
	for part := range slices.Chunk(ids, 1000) {
		found, err := read[[]string](ctx, s.tables, db, `SELECT DISTINCT consumer_type FROM {messages} WHERE id IN (?)`, bun.List(part))
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Named is a message with the consumer under which it is stored.
type Named struct {
	ID           int64  `bun:"id"`
	ConsumerType string `bun:"consumer_type"`
}

// NamedIn is a table of messages.
type NamedIn string

// The tables of messages.
const (
	PendingTable  NamedIn = "{messages}"
	PoisonedTable NamedIn = "{poisoned}"
	ConsumedTable NamedIn = "{consumed}"
)

// Named returns those of the messages that exist.
func (s *OperationStore) Named(ctx context.Context, db bun.IDB, in NamedIn, ids []int64) ([]Named, error) {
	table := string(in)
	return read[[]Named](ctx, s.tables, db, `SELECT id, consumer_type FROM `+table+` WHERE id IN (?) ORDER BY id`, bun.List(ids))
}

// List lists operations, the newest first unless the filter has another order.
func (s *OperationStore) List(ctx context.Context, db bun.IDB, f OperationFilter, limit int) ([]Operation, error) {
	t := f.terms()
	if f.OldestFirst {
		return read[[]Operation](ctx, s.tables, db, selectOperations+t.where()+` ORDER BY id LIMIT ?`, append(t.args, limit)...)
	}
	return read[[]Operation](ctx, s.tables, db, selectOperations+t.where()+` ORDER BY id DESC LIMIT ?`, append(t.args, limit)...)
}

// Lock locks an operation for the rest of the transaction. found is false if there is
// none.
func (s *OperationStore) Lock(ctx context.Context, tx bun.Tx, id int64) (o Operation, found bool, err error) {
	if err := s.WriteFirst(ctx, tx); err != nil {
		return o, false, err
	}
	var rows []Operation
	if err := s.names.Query(ctx, tx, selectOperations+`id = ? {lock}`, id).Scan(ctx, &rows); err != nil || len(rows) == 0 {
		return o, false, err
	}
	return rows[0], true, nil
}

// LockMany locks operations for the rest of the transaction, in the order of their ids.
func (s *OperationStore) LockMany(ctx context.Context, tx bun.Tx, f OperationFilter) (rows []Operation, err error) {
	if err := s.WriteFirst(ctx, tx); err != nil {
		return nil, err
	}
	t := f.terms()
	err = s.names.Query(ctx, tx, selectOperations+t.where()+` ORDER BY id {lock}`, t.args...).Scan(ctx, &rows)
	return rows, err
}

// Hold is [OperationStore.Lock] in a transaction of our own. Where the server can bound
// it, it ends after some seconds if the process stands still.
func (s *OperationStore) Hold(ctx context.Context, tx bun.Tx, id int64) (o Operation, found bool, err error) {
	if err := s.within(ctx, tx, operationPatience); err != nil {
		return o, false, err
	}
	return s.Lock(ctx, tx, id)
}

// operationPatience bounds each statement on a locked operation, and the time between two.
const operationPatience = 5 * time.Second

// Lease leases an operation if it is still free. It skips a locked one. An operation that
// still has another owner after its lease has run out counts a death: that process did not get to
// free it.
func (s *OperationStore) Lease(
	ctx context.Context, db bun.IDB, f OperationFilter, owner string, lease time.Duration,
) (leased bool, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		leased = false
		if err := s.WriteFirst(ctx, tx); err != nil {
			return err
		}
		if err := s.within(ctx, tx, operationPatience); err != nil {
			return err
		}
		t := f.terms()
		var ids []int64
		err := s.names.Query(ctx, tx, `SELECT id FROM {operations} WHERE `+t.where()+` ORDER BY id LIMIT 1 {lock free}`, t.args...).
			Scan(ctx, &ids)
		if err != nil || len(ids) == 0 {
			return err
		}
		// MariaDB assigns from left to right: deaths has to use the old owner.
		err = s.names.Exec(ctx, tx, `UPDATE {operations} SET deaths = deaths + CASE WHEN leased_by IS NULL OR leased_by = ?0 OR state = ?2 THEN 0 ELSE 1 END,
  leased_by = ?0, leased_until = `+s.names.After(ctx, lease)+` WHERE id = ?1`, owner, ids[0], f.Idle)
		leased = err == nil
		return err
	})
	return leased && err == nil, err
}

// OperationChange changes some columns of an operation.
type OperationChange struct {
	State    string        // empty leaves it
	Note     *string       // nil leaves it
	Reason   string        // empty leaves it
	Rate     int64         // 0 leaves it
	Canary   *int64        // nil leaves it
	Canaries []byte        // nil leaves it
	StartsIn time.Duration // 0 leaves it
	Finished bool
	Lease    time.Duration // from now; 0 leaves it
	Free     bool          // no process works on it any more
	// The results of a step, added to those before.
	AfterID            int64 // 0 leaves it
	Changed, LeftAlone int64
}

func (s *OperationStore) operationTerms(ctx context.Context, c OperationChange) (set terms) {
	set.add(c.State != "", "state = ?", c.State)
	if c.Note != nil {
		set.add(true, "note = ?", errorlog.Clean(*c.Note, maxReason))
	}
	set.add(c.Reason != "", "reason = ?", errorlog.Clean(c.Reason, maxReason))
	set.add(c.Rate != 0, "rate = ?", c.Rate)
	if c.Canary != nil {
		set.add(true, "canary = ?", *c.Canary)
	}
	set.add(c.Canaries != nil, "canaries = ?", string(c.Canaries))
	set.add(c.StartsIn != 0, "starts_at = "+s.names.After(ctx, c.StartsIn))
	set.add(c.Finished, "finished_at = {now}")
	set.add(c.Lease != 0, "leased_until = "+s.names.After(ctx, c.Lease))
	set.add(c.Free, "leased_by = NULL, leased_until = NULL")
	set.add(c.Free || c.AfterID != 0 || c.Changed != 0 || c.LeftAlone != 0, "deaths = 0")
	set.add(c.AfterID != 0, "after_id = ?", c.AfterID)
	set.add(c.Changed != 0, "changed = changed + ?", c.Changed)
	set.add(c.LeftAlone != 0, "left_alone = left_alone + ?", c.LeftAlone)
	return set
}

// Change changes the operation that the filter matches, and reports whether there was one.
func (s *OperationStore) Change(ctx context.Context, db bun.IDB, f OperationFilter, c OperationChange) (bool, error) {
	set := s.operationTerms(ctx, c)
	if len(set.texts) == 0 || f.ID == 0 {
		return false, fmt.Errorf("change operation %d: nothing changes", f.ID)
	}
	t := f.terms()
	return s.changedOne(ctx, db, `UPDATE {operations} SET `+strings.Join(set.texts, ", ")+` WHERE `+t.where(), append(set.args, t.args...)...)
}

// Fates returns how many requeued messages have failed since, and how many of the others have not
// run. The rest is done.
func (s *OperationStore) Fates(ctx context.Context, db bun.IDB, ids []int64) (failed, waiting int, err error) {
	type fates struct {
		Failed  int `bun:"failed"`
		Waiting int `bun:"waiting"`
	}
	found, _, err := first[fates](ctx, s.tables, db, `SELECT
  (SELECT count(*) FROM {messages} WHERE id IN (?0) AND attempts > 0) + (SELECT count(*) FROM {poisoned} WHERE id IN (?0)) AS failed,
  (SELECT count(*) FROM {messages} WHERE id IN (?0) AND attempts = 0) AS waiting`, bun.List(ids))
	return found.Failed, found.Waiting, err
}
