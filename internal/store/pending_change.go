package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// PendingChange is a change to messages.
type PendingChange struct {
	Cancel      bool      // delete them; otherwise
	AvailableAt time.Time // they become due then; the zero time means now
}

// Changed is the result for each named message.
type Changed struct {
	IDs          []int64  // changed
	PayloadTypes []string // of these
	Held         []int64  // unchanged: claimed, or locked by another transaction
	Missing      []int64
}

// Change changes those of the messages that are neither claimed nor locked. It waits for no
// lock: locked messages count as held.
//
// Like a claim it needs two statements. The first locks rows. The second has its own snapshot,
// which sees every claim committed before the rows were locked. From then on the rows cannot be
// claimed.
func (s *PendingStore) Change(ctx context.Context, db bun.IDB, ids []int64, c PendingChange) (changed Changed, err error) {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if _, isTx := db.(bun.Tx); !isTx && !s.RowLocks() {
		// A consumer's transaction may hold the only write lock. A request for just its own
		// message, for example, is answered without it.
		if changed, err = s.unchangeable(ctx, db, ids); err != nil || len(changed.Held)+len(changed.Missing) == len(ids) {
			return changed, err
		}
	}
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		changed = Changed{}
		if err := s.WriteFirst(ctx, tx); err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		_, callers := db.(bun.Tx)
		callers = callers && !txn.IsOwn(ctx)
		if err := s.lockGatesOf(ctx, tx, callers, ids); err != nil {
			return fmt.Errorf("gate: %w", err)
		}
		free, err := s.dialect.LockPending(ctx, tx, callers, ids)
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if len(free) > 0 {
			if err := s.changeLocked(ctx, tx, free, c, &changed); err != nil {
				return err
			}
		}
		rest := slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(changed.IDs, id) })
		changed.Held, changed.Missing, err = s.existing(ctx, tx, rest)
		return err
	})
	if err != nil {
		return Changed{}, err
	}
	return changed, nil
}

// gatePatience is how long a client that vanishes can keep a gate locked.
const gatePatience = 5 * time.Second

// lockGatesOf keeps messages with keys from being claimed: a claim does not lock their rows. Others
// may wait for the gates, so a caller's transaction must not keep them locked.
func (s *PendingStore) lockGatesOf(ctx context.Context, tx bun.Tx, callers bool, ids []int64) error {
	if !s.RowLocks() {
		return nil
	}
	var names []string
	err := s.names.Query(ctx, tx, `SELECT DISTINCT consumer_type FROM {messages} WHERE id IN (?) AND keyed = TRUE ORDER BY consumer_type`, bun.List(ids)).
		Scan(ctx, &names)
	if err != nil || len(names) == 0 {
		return err
	}
	if callers {
		return fmt.Errorf(
			"%w: changing messages with keys in the caller's transaction would block their consumers: pass the *bun.DB",
			bus.ErrInvalidOption,
		)
	}
	if err := s.within(ctx, tx, gatePatience); err != nil {
		return err
	}
	for _, name := range names { // claims that come meanwhile wait for it
		if err := s.names.Exec(ctx, tx, `INSERT INTO {gates} (consumer_type, parks) VALUES (?, TRUE) {keep consumer}`, name); err != nil {
			return err
		}
	}
	var locked []string
	return s.names.Query(ctx, tx, `SELECT consumer_type FROM {gates}{by key} WHERE consumer_type IN (?) ORDER BY consumer_type FOR UPDATE`, bun.List(names)).
		Scan(ctx, &locked)
}

// unchangeable returns which messages are held or missing, without a lock.
func (s *PendingStore) unchangeable(ctx context.Context, db bun.IDB, ids []int64) (found Changed, err error) {
	var held []int64
	err = s.names.Query(ctx, db, `SELECT m.id FROM {messages} m WHERE m.id IN (?) AND m.id IN (SELECT mid FROM ({holds}) h)`, bun.List(ids)).
		Scan(ctx, &held)
	if err != nil {
		return found, err
	}
	existing, missing, err := s.existing(ctx, db, ids)
	if err != nil {
		return found, err
	}
	found.Missing = missing
	// A message finished between the two reads is missing.
	found.Held = slices.DeleteFunc(held, func(id int64) bool { return !slices.Contains(existing, id) })
	return found, nil
}

func (s *PendingStore) changeLocked(ctx context.Context, tx bun.Tx, ids []int64, c PendingChange, changed *Changed) error {
	due := ""
	if !c.Cancel {
		due = s.names.Now(ctx)
		if !c.AvailableAt.IsZero() {
			due = s.names.Instant(dialect.Due(c.AvailableAt))
		}
	}
	rows, err := s.dialect.ChangeLocked(ctx, tx, ids, due)
	for _, row := range rows {
		changed.IDs = append(changed.IDs, row.ID)
		if !slices.Contains(changed.PayloadTypes, row.PayloadType) {
			changed.PayloadTypes = append(changed.PayloadTypes, row.PayloadType)
		}
	}
	slices.Sort(changed.IDs)
	return err
}

func (s *PendingStore) existing(ctx context.Context, db bun.IDB, ids []int64) (existing, missing []int64, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	err = s.names.Query(ctx, db, `SELECT id FROM {messages} WHERE id IN (?) ORDER BY id`, bun.List(ids)).Scan(ctx, &existing)
	missing = slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(existing, id) })
	return existing, missing, err
}
