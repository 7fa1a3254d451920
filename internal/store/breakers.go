package store

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// mostCooldown bounds the doubled cooldown of a breaker, unless its cooldown is longer to begin
// with. Nothing waits longer than that for a recovered dependency.
const mostCooldown = time.Minute

const (
	// breakerIdle is after how long a process without a message to probe with refreshes open_until.
	breakerIdle = time.Minute
	// breakerAbandoned is after how long without a refresh a breaker counts as abandoned.
	breakerAbandoned = 10 * time.Minute
	breakersKept     = 7 * 24 * time.Hour
)

// Breaker is the stored state of a consumer's circuit breaker.
type Breaker struct {
	Name      string         `bun:"name"`
	HalfSince dialect.Moment `bun:"half_since"`
	Done      int64          `bun:"done"`
	Failed    int64          `bun:"failed"`
	WasDone   int64          `bun:"was_done"`
	WasFailed int64          `bun:"was_failed"`
	Opened    int            `bun:"opened"` // how often since it was closed
	OpenedAt  dialect.Moment `bun:"opened_at"`
	OpenUntil dialect.Moment `bun:"open_until"` // zero while it is closed
	Now       dialect.Moment `bun:"now"`
}

// Open reports whether the breaker is open.
func (b Breaker) Open() bool { return !b.OpenUntil.IsZero() }

// Idle reports whether it has been time to probe for so long that KeepBreaker is needed.
func (b Breaker) Idle() bool { return b.Open() && b.Now.Sub(b.OpenUntil.Time) > breakerIdle }

// Due reports whether it is time to probe an open breaker. A time further ahead than any cooldown is
// that of a clock that was set back since, or of a longer cooldown.
func (b Breaker) Due(config bus.CircuitBreakerConfig) bool {
	left := b.OpenUntil.Sub(b.Now.Time)
	return b.Open() && (left <= 0 || left > longestCooldown(config))
}

func longestCooldown(config bus.CircuitBreakerConfig) time.Duration {
	return max(mostCooldown, config.Cooldown)
}

// Troubled reports whether runs have failed lately, so that successful ones count.
func (b Breaker) Troubled() bool { return b.Failed+b.WasFailed > 0 }

const breakerColumns = `SELECT name, half_since, done, failed, was_done, was_failed, opened, opened_at, open_until, {now} AS now FROM {breakers} WHERE `

// Breakers returns the breakers of these names that exist.
func (s *FlowStore) Breakers(ctx context.Context, db bun.IDB, names []string) ([]Breaker, error) {
	return read[[]Breaker](ctx, s.tables, db, breakerColumns+`name IN (?)`, bun.List(names))
}

// OpenBreakers returns the open breakers that a process has.
func (s *FlowStore) OpenBreakers(ctx context.Context, db bun.IDB) ([]Breaker, error) {
	return read[[]Breaker](ctx, s.tables, db, breakerColumns+`open_until > ? ORDER BY name`, bun.Safe(s.names.After(ctx, -breakerAbandoned)))
}

// CountRuns adds runs to a breaker, and opens it when too many have failed.
func (s *FlowStore) CountRuns(
	ctx context.Context, db bun.IDB, name string, config bus.CircuitBreakerConfig, done, failed int64,
) (b Breaker, err error) {
	err = txn.InTx(txn.Shared(ctx), db, func(tx bun.Tx) error {
		if err := s.WriteFirst(ctx, tx); err != nil {
			return err
		}
		err := s.names.Exec(ctx, tx, `INSERT INTO {breakers} (name, half_since) VALUES (?, {now}) {keep named}`, name)
		if err != nil {
			return err
		}
		if err := s.names.Query(ctx, tx, breakerColumns+`name = ? {lock}`, name).Scan(ctx, &b); err != nil || b.Open() {
			return err // runs that began before it opened do not count
		}
		b.count(config, done, failed)
		openedAt, openUntil := "NULL", "NULL"
		if b.Open() {
			openedAt, openUntil = s.names.Instant(b.OpenedAt.Time), s.names.Instant(b.OpenUntil.Time)
		}
		return s.names.Exec(ctx, tx, `UPDATE {breakers} SET half_since = ?, done = ?, failed = ?, was_done = ?, was_failed = ?, opened = ?, opened_at = ?, open_until = ? WHERE name = ?`,
			bun.Safe(s.names.Instant(b.HalfSince.Time)),
			b.Done, b.Failed, b.WasDone, b.WasFailed, b.Opened, bun.Safe(openedAt), bun.Safe(openUntil), name)
	})
	return b, err
}

// count adds runs to the current half of the window.
func (b *Breaker) count(config bus.CircuitBreakerConfig, done, failed int64) {
	now := b.Now.Time
	switch since := now.Sub(b.HalfSince.Time); {
	case since >= config.Window, since < 0: // the clock was set back
		b.WasDone, b.WasFailed, b.Done, b.Failed, b.HalfSince.Time = 0, 0, 0, 0, now
	case since >= config.Window/2:
		b.WasDone, b.WasFailed, b.Done, b.Failed, b.HalfSince.Time = b.Done, b.Failed, 0, 0, now
	}
	b.Done, b.Failed = b.Done+done, b.Failed+failed
	all, bad := b.Done+b.WasDone+b.Failed+b.WasFailed, b.Failed+b.WasFailed
	if all < int64(config.MinRequests) || float64(bad) < config.FailureRatio*float64(all) {
		return
	}
	// The counts stay while it is open: they are the reason.
	*b = Breaker{
		Name: b.Name, HalfSince: b.Now, Done: all - bad, Failed: bad, Opened: 1, OpenedAt: b.Now,
		OpenUntil: dialect.Moment{Time: now.Add(config.Cooldown)}, Now: b.Now,
	}
}

// TakeProbe gives one process the right to probe an open breaker once its time is over. The others
// then wait longer than before.
func (s *FlowStore) TakeProbe(ctx context.Context, db bun.IDB, b Breaker, config bus.CircuitBreakerConfig) (won bool, err error) {
	wait := config.Cooldown
	for range b.Opened {
		if wait >= mostCooldown {
			break
		}
		wait = min(2*wait, mostCooldown)
	}
	return s.changedOne(
		ctx, db,
		`UPDATE {breakers} SET opened = opened + 1, open_until = ? WHERE name = ? AND opened = ? AND (open_until <= {now} OR open_until > ?)`,
		bun.Safe(s.names.After(ctx, wait)), b.Name, b.Opened, bun.Safe(s.names.After(ctx, longestCooldown(config))),
	)
}

// KeepBreaker shows that a process has an open breaker that it cannot probe yet.
func (s *FlowStore) KeepBreaker(ctx context.Context, db bun.IDB, b Breaker) error {
	return s.exec(ctx, db, `UPDATE {breakers} SET open_until = {now} WHERE name = ? AND open_until < ?`,
		b.Name, bun.Safe(s.names.After(ctx, -breakerIdle)))
}

// ProbeBreaker lets the first process with a message of the consumer probe an open breaker now. It
// returns false if none is open, or no process has it.
func (s *FlowStore) ProbeBreaker(ctx context.Context, db bun.IDB, names []string) (open bool, err error) {
	n, err := s.changed(ctx, db, `UPDATE {breakers} SET open_until = {now} WHERE name IN (?) AND open_until > ?`,
		bun.List(names), bun.Safe(s.names.After(ctx, -breakerAbandoned)))
	return n > 0, err
}

// CloseBreaker closes a breaker and forgets its counts.
func (s *FlowStore) CloseBreaker(ctx context.Context, db bun.IDB, name string) error {
	return s.exec(ctx, db, `UPDATE {breakers} SET half_since = {now}, done = 0, failed = 0, was_done = 0, was_failed = 0, opened = 0, opened_at = NULL, open_until = NULL WHERE name = ?`, name)
}
