package dialect

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Messages of one key run in order, or in any order. In order their ranks are numbers in the order
// of production. In any order they are instants, in microseconds since 1970, at which the messages
// are due: waiting messages are thus behind those that may run. Ranks from FirstInstant on are
// instants.
const FirstInstant = "100000000000000" // in 1973

const firstInstant = 100_000_000_000_000

// Due returns the instant to store for a due time. Before FirstInstant it would be no rank of messages in any
// order, and all due times of the past mean now.
func Due(at time.Time) time.Time {
	first := time.UnixMicro(firstInstant)
	if !at.IsZero() && at.Before(first) {
		return first
	}
	return at
}

// Unbounded is the PerKey of a source that shares among keys and does not bound them.
const Unbounded = math.MaxInt32

// Source is the keyed messages of a consumer under one of its names, and the rules by which they
// run.
type Source struct {
	Name     string
	Names    []string // all names of the consumer: ranks are one sequence for all of them
	Payloads []string // the types that it accepts
	// PerKey is how many of one key may be held at once, in any order. Zero means in order.
	PerKey int
	// KeyRate bounds how many of one key start in a time. Nil means no such bound.
	KeyRate *Rate
	// Parks means that a poisoned message that blocks its key keeps those behind it from running.
	// Processes of several versions may differ in that.
	Parks bool
}

const (
	// freeLane is true for a lane l whose messages may be claimed: it is not busy, no poisoned
	// message blocks it, and the consumer is not paused. renamed is also true for a message m
	// without a predecessor of its key under another name of the consumer. unspent is true if the
	// rate of the lane, if any, allows a message. They guard each claim.
	freeLane = `l.lane NOT IN ({busy lanes}) AND NOT EXISTS (SELECT 1 FROM {poisoned} p WHERE p.consumer_type {names} AND p.lane = l.lane AND p.parks)
  AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type {names})`
	renamed = ` AND NOT EXISTS (SELECT 1 FROM {by lane} e WHERE e.consumer_type {names} AND e.lane = l.lane AND e.lane IS NOT NULL AND e.rank < m.rank)`
	unspent = ` AND COALESCE((SELECT k.used_to FROM {key rates} k WHERE k.name = ? AND k.lane = l.lane), {now}) - {now} <= CAST(? AS bigint){unit}` // no join: the planner chooses bad plans for it

	fullLanes = `SELECT h.lane FROM ({held lanes}) h GROUP BY h.lane HAVING count(*) >= ?`
)

// For returns a statement for the source. {busy lanes} are those that may not be claimed any more,
// and {unspent} is true for lanes f whose rate allows a message. In any order, {loose} leaves out
// messages m that are held or not due, and {runnable} what else may not run now, since such
// messages do not block those behind them. In order, {first} is true for the first message m of a
// lane.
func (s Source) For(statement string) string {
	busy, loose, runnable, allowed, parks := "{held lanes}", "", "", "", "p.parks"
	first := ` AND NOT EXISTS (SELECT 1 FROM {by lane} f WHERE f.consumer_type = m.consumer_type AND f.lane = m.lane AND f.lane IS NOT NULL AND f.rank < m.rank)`
	if s.PerKey > 0 {
		first = ""
		busy, loose = fullLanes, " AND m.rank <= {micros now} AND m.id NOT IN ({held ids})"
		runnable = loose + " AND m.available_after <= {now} AND m.crashes = 0 AND m.payload_type {names}"
	}
	if s.KeyRate != nil {
		allowed = strings.ReplaceAll(unspent, "l.lane", "f.lane")
	}
	if !s.Parks {
		parks = "FALSE"
	}
	return strings.NewReplacer(
		"{busy lanes}", busy, "{loose}", loose, "{first}", first, "{runnable}", runnable, "{unspent}", allowed, "p.parks", parks,
	).
		Replace(statement)
}

// busy returns the values of {busy lanes}.
func (s Source) busy(n Names) []any {
	if s.PerKey > 0 {
		return []any{n.NameList(s.Names), s.PerKey}
	}
	return []any{n.NameList(s.Names)}
}

// loose returns the values of {loose}.
func (s Source) loose(n Names) []any {
	if s.PerKey > 0 {
		return []any{n.NameList(s.Names)}
	}
	return nil
}

// Runnable returns the values of {runnable}.
func (s Source) Runnable(n Names) []any {
	if s.PerKey > 0 {
		return append(s.loose(n), n.NameList(s.Payloads))
	}
	return nil
}

// others returns the names of the consumer under which messages may come before those under Name,
// in order.
func (s Source) others() []string {
	if s.PerKey > 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(s.Names), func(name string) bool { return name == s.Name })
}

// unspent returns the values of {unspent}.
func (s Source) unspent() []any {
	if s.KeyRate == nil {
		return nil
	}
	return []any{s.KeyRate.Name, s.KeyRate.lastAllowed().Microseconds()}
}

// Moved returns the rank of a message that becomes due at an instant. micros formats its
// microseconds.
func Moved(rank, due string, micros func(string) string) string {
	return "CASE WHEN " + rank + " >= " + FirstInstant + " THEN " + micros(due) + " ELSE " + rank + " END"
}

// lastAllowed returns how far ahead of now a rate may be used if it is to allow one more.
func (r Rate) lastAllowed() time.Duration { return r.after(r.Burst - 1) }
