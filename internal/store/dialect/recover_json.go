package dialect

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"
)

// RecoverStatements are the statements of [Lists.Recover].
type RecoverStatements struct {
	Dead    string // locks claims that have outlived their lease
	Present string // of a list: the messages that exist, and whether they run in order
	Hit     string // locks messages of a list, except those locked by other transactions
	Died    string // records which owners were lost with which messages
	Bury    string // poisons messages: a reason and a list
	Bump    string // sets the number of crashes of messages: a list of pairs
}

// Recover leaves locked messages alone: a transactional consumer that outlived its lease still
// works on them and has not crashed.
func (l *Lists) Recover(ctx context.Context, db bun.IDB, maxCrashes int) (found Recovered, err error) {
	err = l.Dialect.InTx(ctx, db, func(tx bun.IDB) error {
		found = Recovered{}
		if err := l.shorten(ctx, tx); err != nil {
			return err
		}
		var dead []Leased
		if err := l.Dialect.Query(ctx, tx, l.SQL.Recover.Dead).Scan(ctx, &dead); err != nil || len(dead) == 0 {
			return err
		}
		died := make(map[int64]Leased)
		var claims, ids []int64
		for _, c := range dead {
			begun, err := l.begun(ctx, tx, c)
			if err != nil {
				return err
			}
			claims, ids = append(claims, c.ID), append(ids, begun...)
			for _, id := range begun {
				died[id] = c
			}
		}
		var hit []struct{ ID, Crashes int64 }
		if err := l.Dialect.Query(ctx, tx, l.SQL.Recover.Hit, Ordered(ids)).Scan(ctx, &hit); err != nil {
			return err
		}
		var dying []int64
		var bumped [][2]int64
		var lost [][3]any
		for _, h := range hit {
			solo := died[h.ID].Solo
			lost = append(lost, [3]any{h.ID, died[h.ID].Owner, solo})
			switch more := h.Crashes + 1; {
			case solo && more >= int64(maxCrashes):
				dying = append(dying, h.ID)
			case solo:
				bumped = append(bumped, [2]int64{h.ID, more})
			default:
				bumped = append(bumped, [2]int64{h.ID, min(more, int64(maxCrashes)-1)})
			}
		}
		if len(lost) > 0 {
			if err := l.Dialect.Exec(ctx, tx, l.SQL.Recover.Died, AsJSON(lost)); err != nil {
				return fmt.Errorf("crashes: %w", err)
			}
		}
		if err := l.count(ctx, tx, dying, bumped, maxCrashes); err != nil {
			return err
		}
		found = Recovered{Claims: len(dead), Crashed: len(hit), Poisoned: len(dying)}
		return l.Dialect.Run(ctx, tx, l.SQL.Forget, claims)
	})
	return found, err
}

// shorten gives claims that are ahead a full lease.
func (l *Lists) shorten(ctx context.Context, tx bun.IDB) error {
	var ahead []int64
	err := l.Dialect.Query(ctx, tx, `SELECT id FROM {claims}{by key} WHERE {ahead} ORDER BY id {lock free}`).Scan(ctx, &ahead)
	if err != nil || len(ahead) == 0 {
		return err
	}
	return l.Dialect.Exec(ctx, tx, `UPDATE {claims}{by key} SET leased_until = {full lease} WHERE id IN (?)`, bun.List(ahead))
}

// begun returns the messages of a claim that may have begun. Of each ordered lane that is only the
// first existing one.
func (l *Lists) begun(ctx context.Context, tx bun.IDB, c Leased) (ids []int64, err error) {
	if len(c.Lanes) == 0 {
		return c.MessageIDs, nil
	}
	var present []struct {
		ID      int64
		InOrder bool
	}
	if err := l.Dialect.Query(ctx, tx, l.SQL.Recover.Present, Ordered(c.MessageIDs)).Scan(ctx, &present); err != nil {
		return nil, err
	}
	inOrder, seen := make(map[int64]bool, len(present)), make(map[int64]bool)
	for _, m := range present {
		inOrder[m.ID] = m.InOrder
	}
	for i, id := range c.MessageIDs {
		if ordered, there := inOrder[id]; there && !(ordered && seen[c.Lanes[i]]) {
			seen[c.Lanes[i]] = ordered
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// count writes the crashes of locked messages.
func (l *Lists) count(ctx context.Context, tx bun.IDB, dying []int64, bumped [][2]int64, maxCrashes int) error {
	if len(dying) > 0 {
		if err := l.Dialect.Exec(ctx, tx, l.SQL.Recover.Bury, CrashReason(maxCrashes), Ordered(dying)); err != nil {
			return fmt.Errorf("poison: %w", err)
		}
	}
	if err := l.Dialect.Run(ctx, tx, l.SQL.Delete, dying); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if len(bumped) == 0 {
		return nil
	}
	return l.Dialect.Exec(ctx, tx, l.SQL.Recover.Bump, AsJSON(bumped))
}
