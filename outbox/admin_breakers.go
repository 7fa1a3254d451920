package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// OpenBreaker is a bus.CircuitBreaker that is open. No message of its consumer starts in any
// process, except one at a time that probes whether the consumer works again.
type OpenBreaker struct {
	OpenedAt time.Time `json:"opened_at"`
	// Failed and Runs are why it opened: so many of so many runs failed within the window.
	Failed int64 `json:"failed"`
	Runs   int64 `json:"runs"`
	// NextProbeAt is from when on the next message probes: see [Admin.Probe].
	NextProbeAt time.Time `json:"next_probe_at"`
}

// String says it for people, in the same words everywhere.
func (b OpenBreaker) String() string {
	return fmt.Sprintf("breaker open since %s: %d of %d runs failed; the next message is tried at %s", instant(b.OpenedAt), b.Failed, b.Runs, instant(b.NextProbeAt))
}

func newOpenBreaker(row store.Breaker) OpenBreaker {
	return OpenBreaker{OpenedAt: row.OpenedAt.Time, Failed: row.Failed, Runs: row.Done + row.Failed, NextProbeAt: row.OpenUntil.Time}
}

// openBreakers are those that are open, by all names of their consumers.
func (a *Admin) openBreakers(ctx context.Context, db bun.IDB, st *store.Store) (map[string]*OpenBreaker, error) {
	rows, err := st.OpenBreakers(ctx, db)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	names, err := a.Names(ctx, db)
	if err != nil {
		return nil, err
	}
	open := make(map[string]*OpenBreaker)
	for _, row := range rows {
		b := newOpenBreaker(row)
		for _, name := range names.Of(row.Name) {
			open[name] = &b
		}
	}
	return open, nil
}

// ErrNotOpen: the consumer has no open circuit breaker; use errors.Is.
var ErrNotOpen = errors.New("its breaker is not open")

// Probe has one message of a consumer with an open bus.CircuitBreaker run now, rather than at
// [OpenBreaker.NextProbeAt]: a run that is done closes the circuit breaker. It takes about a second
// until a process with such a message sees the request. Probe returns [ErrNotOpen] if no circuit
// breaker of the consumer is open, and otherwise the errors of [Admin.Pause].
func (a *Admin) Probe(ctx context.Context, db bun.IDB, consumer string) error {
	st, db, err := a.stores.In(ctx, db, errAdminUnmade)
	if err = errors.Join(err, checkConsumer(consumer)); err == nil {
		err = a.underAllNames(ctx, st, db, consumer, func(tx bun.Tx, names []string) error {
			open, err := st.ProbeBreaker(ctx, tx, names)
			if err == nil && !open {
				err = ErrNotOpen
			}
			return err
		})
	}
	return dberr.Wrap(err, "outbox: admin: probe %q", consumer)
}
