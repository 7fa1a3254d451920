package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Slot is the right to run one of the consumers that share a limit.
type Slot struct {
	Name string `bun:"name"`
	N    int    `bun:"n"`
}

// slotWanted is how long a waiting owner without a slot stays recorded.
const slotWanted = time.Second

// TakeSlots leases up to wanted free slots of the limit and returns them. It does not wait for
// locks. Slots leased by a clock that was set back since are free after a full lease. An owner
// without a slot that gets none is recorded in slot 0, which is no slot: see SlotsWanted.
func (s *FlowStore) TakeSlots(
	ctx context.Context, db *bun.DB, owner, name string, limit, wanted int, lease time.Duration,
) (taken []Slot, err error) {
	err = txn.InTx(txn.Shared(ctx), db, func(tx bun.Tx) error {
		taken = nil
		if err := s.WriteFirst(ctx, tx); err != nil {
			return err
		}
		if err := s.ensureSlots(ctx, tx, name, limit); err != nil {
			return err
		}
		free, err := s.freeSlots(ctx, tx, name, limit, wanted)
		if err != nil {
			return err
		}
		if len(free) == 0 {
			return s.wantSlot(ctx, tx, owner, name)
		}
		err = s.names.Exec(ctx, tx, `UPDATE {slots} SET owner = ?, leased_until = ?, leased_for = ? WHERE name = ? AND n IN (?)`,
			owner, bun.Safe(s.names.After(ctx, lease)), lease.Microseconds(), name, bun.List(free))
		taken = slotsOf(name, free)
		return err
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// freeSlots locks and returns up to wanted free slots, and shortens leases that are ahead.
func (s *FlowStore) freeSlots(ctx context.Context, tx bun.Tx, name string, limit, wanted int) (free []int, err error) {
	var found []struct {
		N     int
		Ahead bool
	}
	err = s.names.Query(ctx, tx, `SELECT n, owner <> '' AND leased_until > {now} AS ahead FROM {slots}
WHERE name = ? AND n BETWEEN 1 AND ? AND (owner = '' OR leased_until <= {now} OR {ahead}) ORDER BY n LIMIT ? {lock free}`, name, limit, wanted).
		Scan(ctx, &found)
	var ahead []int
	for _, slot := range found {
		if slot.Ahead {
			ahead = append(ahead, slot.N)
		} else {
			free = append(free, slot.N)
		}
	}
	if err == nil && len(ahead) > 0 {
		err = s.names.Exec(ctx, tx, `UPDATE {slots} SET leased_until = {full lease} WHERE name = ? AND n IN (?)`, name, bun.List(ahead))
	}
	return free, err
}

// ensureSlots creates the missing slots of a limit.
func (s *FlowStore) ensureSlots(ctx context.Context, tx bun.Tx, name string, limit int) error {
	var have int
	if err := s.names.Query(ctx, tx, `SELECT count(*) FROM {slots} WHERE name = ? AND n <= ?`, name, limit).Scan(ctx, &have); err != nil ||
		have > limit {
		return err
	}
	values := make([]any, 0, 2*limit+2)
	for n := range limit + 1 {
		values = append(values, name, n)
	}
	return s.names.Exec(ctx, tx, `INSERT INTO {slots} (name, n, owner, leased_until) VALUES `+dialect.Rows("(?, ?, '', {now})", limit+1)+` {keep slot}`, values...)
}

// wantSlot records an owner that waits for a slot, unless it has one or another owner was recorded
// just now.
func (s *FlowStore) wantSlot(ctx context.Context, tx bun.Tx, owner, name string) error {
	var has int
	err := s.names.Query(ctx, tx, `SELECT count(*) FROM {slots} WHERE name = ? AND owner = ? AND n > 0 AND leased_until > {now}`, name, owner).
		Scan(ctx, &has)
	if err != nil || has > 0 {
		return err
	}
	return s.names.Exec(ctx, tx, `UPDATE {slots} SET owner = ?0, leased_until = ?1 WHERE name = ?2 AND n = 0 AND (leased_until < ?3 OR leased_until > ?1)`,
		owner, bun.Safe(s.names.After(ctx, slotWanted)), name, bun.Safe(s.names.After(ctx, slotWanted/2)))
}

// SlotsWanted returns the limits for whose slots another owner without any waits.
func (s *FlowStore) SlotsWanted(ctx context.Context, db bun.IDB, owner string, names []string) (wanted []string, err error) {
	err = s.names.Query(ctx, db, `SELECT name FROM {slots} WHERE name IN (?) AND n = 0 AND owner <> ? AND leased_until > {now} AND leased_until <= ?`,
		bun.List(names), owner, bun.Safe(s.names.After(ctx, slotWanted))).
		Scan(ctx, &wanted)
	return wanted, err
}

// ExtendSlots renews slots of the owner, by the names of their limits, and returns those renewed and
// all that it still has. It does not wait for locks. A slot that the owner has no record of ends with
// its lease.
func (s *FlowStore) ExtendSlots(
	ctx context.Context, db bun.IDB, owner string, slots map[string][]int, lease time.Duration,
) (renewed, held []Slot, err error) {
	err = txn.InTx(txn.Shared(ctx), db, func(tx bun.Tx) error {
		renewed, held = nil, nil
		if err := s.WriteFirst(ctx, tx); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(slots)) {
			var free []int
			err := s.names.Query(ctx, tx, `SELECT n FROM {slots} WHERE name = ? AND n IN (?) AND owner = ? ORDER BY n {lock free}`,
				name, bun.List(slots[name]), owner).Scan(ctx, &free)
			if err == nil && len(free) > 0 {
				err = s.names.Exec(ctx, tx, `UPDATE {slots} SET leased_until = ? WHERE name = ? AND n IN (?)`,
					bun.Safe(s.names.After(ctx, lease)), name, bun.List(free))
			}
			if err != nil {
				return err
			}
			renewed = append(renewed, slotsOf(name, free)...)
		}
		return s.names.Query(ctx, tx, `SELECT name, n FROM {slots} WHERE owner = ? AND n > 0`, owner).Scan(ctx, &held)
	})
	if err != nil {
		return nil, nil, err
	}
	return renewed, held, nil
}

func slotsOf(name string, numbers []int) []Slot {
	return dialect.Each(numbers, func(n int) Slot { return Slot{Name: name, N: n} })
}

// ReturnSlots releases slots of the owner.
func (s *FlowStore) ReturnSlots(ctx context.Context, db bun.IDB, owner, name string, slots []int) error {
	return s.exec(ctx, db, `UPDATE {slots} SET owner = '', leased_until = {now} WHERE name = ? AND n IN (?) AND owner = ?`, name, bun.List(slots), owner)
}

// TakenSlots is how many slots of a limit are taken.
type TakenSlots struct {
	Name string `bun:"name"`
	N    int    `bun:"n"`
}

// TakenSlots returns how many slots of these limits are taken. Limits without any are left out.
func (s *FlowStore) TakenSlots(ctx context.Context, db bun.IDB, names []string) (map[string]int, error) {
	taken := make(map[string]int, len(names))
	for part := range slices.Chunk(names, 100) {
		rows, err := read[[]TakenSlots](ctx, s.tables, db,
			`SELECT name, count(*) AS n FROM {slots} WHERE name IN (?) AND n > 0 AND owner <> '' AND leased_until > {now} GROUP BY name`,
			bun.List(part))
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			taken[row.Name] = row.N
		}
	}
	return taken, nil
}

// SlotOwner is an owner of slots of a limit.
type SlotOwner struct {
	Owner string `bun:"owner"`
	Slots int    `bun:"slots"`
}

// SlotOwners returns the current owners of slots of a limit.
func (s *FlowStore) SlotOwners(ctx context.Context, db bun.IDB, name string) ([]SlotOwner, error) {
	return read[[]SlotOwner](ctx, s.tables, db,
		`SELECT owner, count(*) AS slots FROM {slots} WHERE name = ? AND n > 0 AND owner <> '' AND leased_until > {now} GROUP BY owner ORDER BY owner`,
		name)
}
