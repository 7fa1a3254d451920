package dialect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"
)

// Lists is code shared by dialects whose claims store ids as JSON. Their statements write to one
// table each, so one statement on PostgreSQL is a short transaction here. What depends on a list is
// computed in Go, from locked rows.
type Lists struct {
	SQL     ListStatements
	Dialect interface {
		Tables() Names
		Query(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery
		InsertID(ctx context.Context, db bun.IDB, statement string, args ...any) (id int64, err error)
		Exec(ctx context.Context, db bun.IDB, statement string, args ...any) error
		// Run executes one of the statements that take a list of ids, unless it is empty.
		Run(ctx context.Context, tx bun.IDB, statement string, ids []int64) error
		// InTx runs fn in the caller's transaction or one of its own, whose statements see, and
		// change, the newest state.
		InTx(ctx context.Context, db bun.IDB, fn func(tx bun.IDB) error) error
		// Heads and Walk are those of [LaneDialect].
		Heads(ctx context.Context, tx bun.IDB, l *Lanes, lanes []int64, each int) ([]LanePick, error)
		Walk(ctx context.Context, tx bun.IDB, l *Lanes) (lanes []Walked, more bool, err error)
		// Live locks those of the claims that the owner still holds; with lanes it reads their
		// lanes, too.
		Live(ctx context.Context, tx bun.IDB, owner string, claims []int64, lanes bool) ([]Leased, error)
		// Unlocked separates the results whose messages other transactions have locked. The claims
		// are locked. Missing messages count as free: there is nothing to wait for.
		Unlocked(ctx context.Context, tx bun.IDB, live []Leased, results []Result) (free, busy []Result, err error)
	}
}

// ListStatements are the statements that [Lists] needs.
type ListStatements struct {
	Recover       RecoverStatements
	Forget        string // ends the claims of a list
	Delete        string // removes the messages of a list
	Rest          string // writes the rest of a claim: a list, a lease and the claim
	Poison, Again string // of results: poisons messages, and makes others run again
	// The same if some messages have keys, with the rest of the claim's lanes behind the rest of
	// its ids.
	RestLanes, PoisonLanes, AgainLanes string
}

// NewListStatements makes the statements for messages without keys, and then those for the others.
func NewListStatements(of func(lanes func(statement string) string) ListStatements) ListStatements {
	all, lanes := of(WithoutLanes), of(WithLanes)
	all.RestLanes, all.PoisonLanes, all.AgainLanes = lanes.Rest, lanes.Poison, lanes.Again
	return all
}

// Finish implements [Dialect].
func (l *Lists) Finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []Finished, err error) {
	err = l.Dialect.InTx(ctx, db, func(tx bun.IDB) error {
		finished = nil
		live, err := l.Dialect.Live(ctx, tx, owner, claims, false)
		if err != nil {
			return fmt.Errorf("claims: %w", err)
		}
		var ids, done []int64
		for _, c := range live {
			ids, done = append(ids, c.ID), append(done, c.MessageIDs...)
			finished = append(finished, Finished{Claim: c.ID, Messages: len(c.MessageIDs)})
		}
		if err := l.Dialect.Run(ctx, tx, l.SQL.Delete, done); err != nil {
			return fmt.Errorf("messages: %w", err)
		}
		return l.Dialect.Run(ctx, tx, l.SQL.Forget, ids)
	})
	return finished, err
}

// Settle implements [Dialect].
func (l *Lists) Settle(
	ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []Result, freeOnly bool,
) (settled Settled, err error) {
	err = l.Dialect.InTx(ctx, db, func(tx bun.IDB) error {
		settled = Settled{}
		live, err := l.Dialect.Live(ctx, tx, owner, ClaimsOf(results), OfLanes(results))
		if err != nil {
			return fmt.Errorf("claims: %w", err)
		}
		rest := results
		if freeOnly {
			if rest, settled.Busy, err = l.Dialect.Unlocked(ctx, tx, live, results); err != nil {
				return fmt.Errorf("messages: %w", err)
			}
		}
		held, err := l.subtract(ctx, tx, live, lease, rest)
		if err != nil {
			return fmt.Errorf("claims: %w", err)
		}
		for _, c := range live {
			settled.Live = append(settled.Live, c.ID)
		}
		settled.Applied = len(held)
		if err := l.apply(ctx, tx, held); err != nil {
			return err
		}
		return Keep(ctx, l.Dialect.Tables(), tx, KeptOf(held))
	})
	return settled, err
}

// subtract removes settled messages from the claims, which are locked, and returns the results that
// count.
func (l *Lists) subtract(ctx context.Context, tx bun.IDB, live []Leased, lease time.Duration, results []Result) ([]Result, error) {
	held, rests, ended := Subtract(live, results)
	for _, c := range rests {
		rest := l.Dialect.Query(ctx, tx, l.SQL.Rest, AsJSON(c.MessageIDs), lease.Microseconds(), c.ID)
		if len(c.Lanes) > 0 {
			rest = l.Dialect.Query(ctx, tx, l.SQL.RestLanes, AsJSON(c.MessageIDs), AsJSON(c.Lanes), lease.Microseconds(), c.ID)
		}
		if _, err := rest.Exec(ctx); err != nil {
			return nil, err
		}
	}
	return held, l.Dialect.Run(ctx, tx, l.SQL.Forget, ended)
}

// apply writes results that count. It removes messages, some of which are poisoned before, or makes
// them run again. Released messages do not change.
func (l *Lists) apply(ctx context.Context, tx bun.IDB, held []Result) error {
	slices.SortFunc(held, func(a, b Result) int { return cmp.Compare(a.Message, b.Message) })
	var gone []int64
	var poisoned, again []Result
	for _, r := range held {
		switch r.Outcome {
		case Done:
			gone = append(gone, r.Message)
		case Poison:
			gone, poisoned = append(gone, r.Message), append(poisoned, r)
		case Failed, Snoozed:
			again = append(again, r)
		}
	}
	poison, repeat := l.SQL.Poison, l.SQL.Again
	if OfLanes(held) {
		poison, repeat = l.SQL.PoisonLanes, l.SQL.AgainLanes
	}
	if err := l.write(ctx, tx, poison, poisoned); err != nil {
		return fmt.Errorf("poison: %w", err)
	}
	if err := l.Dialect.Run(ctx, tx, l.SQL.Delete, gone); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := l.write(ctx, tx, repeat, again); err != nil {
		return fmt.Errorf("reschedule: %w", err)
	}
	return nil
}

// settleBytes bounds the texts of one statement. Quoted as JSON and then as SQL they can become
// four times as long, and must fit into what a server accepts at once, which is 16 MiB or more. A
// longer statement would get no answer and be repeated forever.
const settleBytes = 2 << 20

// write executes one of the statements that take results, for a part of them at a time.
func (l *Lists) write(ctx context.Context, tx bun.IDB, statement string, results []Result) error {
	for _, part := range Cut(results, settleBytes, func(r Result) int { return len(r.Errors) + len(r.Reason) }) {
		if err := l.Dialect.Exec(ctx, tx, statement, ResultsJSON(part)); err != nil {
			return err
		}
	}
	return nil
}
