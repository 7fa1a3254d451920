package admin

import (
	"context"
	"errors"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// OpenBreaker is a bus.CircuitBreaker that is open. No message of its consumer starts in any
// process, except one at a time that probes whether the consumer works again.
type OpenBreaker struct {
	OpenedAt time.Time `json:"opened_at"`
	// Failed and Runs are why it opened: so many of so many runs failed within the window.
	Failed int64 `json:"failed"`
	Runs   int64 `json:"runs"`
	// NextProbeAt is from when on the next message probes: see [Client.Probe].
	NextProbeAt time.Time `json:"next_probe_at"`
}

// String says it for people, in the same words everywhere.
func (b OpenBreaker) String() string {
	return flow.OpenBreaker{OpenedAt: b.OpenedAt, NextProbeAt: b.NextProbeAt, Failed: b.Failed, Runs: b.Runs}.String()
}

func newOpenBreaker(row store.Breaker) OpenBreaker {
	b := flow.NewOpenBreaker(row)
	return OpenBreaker{OpenedAt: b.OpenedAt, NextProbeAt: b.NextProbeAt, Failed: b.Failed, Runs: b.Runs}
}

// openBreakers are those that are open, by all names of their consumers.
func (a *Client) openBreakers(ctx context.Context, db bun.IDB, st *store.Store) (map[string]*OpenBreaker, error) {
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
// breaker of the consumer is open, and otherwise the errors of [Client.Pause].
func (a *Client) Probe(ctx context.Context, db bun.IDB, consumer string) error {
	st, db, err := a.stores.In(ctx, db, errNotMade)
	if err = errors.Join(err, checkConsumer(consumer)); err == nil {
		err = a.underAllNames(ctx, st, db, consumer, func(tx bun.Tx, names []string) error {
			open, err := st.ProbeBreaker(ctx, tx, names)
			if err == nil && !open {
				err = ErrNotOpen
			}
			return err
		})
	}
	return dberr.Wrap(err, "admin: probe %q", consumer)
}
