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

// OpenBreaker describes a bus.CircuitBreaker that is open. No process starts a message of its
// consumer, except one probe at a time.
type OpenBreaker struct {
	OpenedAt time.Time `json:"opened_at"`
	// Failed of Runs runs within the window failed, which opened it.
	Failed int64 `json:"failed"`
	Runs   int64 `json:"runs"`
	// NextProbeAt is the earliest start of the next probe: see [Client.Probe].
	NextProbeAt time.Time `json:"next_probe_at"`
}

// String describes the circuit breaker for log lines and pages.
func (b OpenBreaker) String() string {
	return flow.OpenBreaker(b).String()
}

func newOpenBreaker(row store.Breaker) OpenBreaker {
	return OpenBreaker(flow.NewOpenBreaker(row))
}

// openBreakers returns the open circuit breakers by every name of their consumers.
func (a *Client) openBreakers(ctx context.Context, db bun.IDB, st *store.Store) (map[string]*OpenBreaker, error) {
	rows, err := st.Flow.OpenBreakers(ctx, db)
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

// ErrNotOpen is returned by [Client.Probe] when the consumer has no open circuit breaker; use
// errors.Is.
var ErrNotOpen = errors.New("its breaker is not open")

// Probe runs one message of a consumer with an open bus.CircuitBreaker now instead of at
// [OpenBreaker.NextProbeAt]. A successful run closes the circuit breaker. A process with such a
// message sees the request after about a second. Probe returns [ErrNotOpen] if no circuit breaker
// of the consumer is open, and otherwise the errors of [Client.Pause].
func (a *Client) Probe(ctx context.Context, db bun.IDB, consumer string) error {
	st, db, err := a.stores.In(ctx, db, errNotMade)
	if err = errors.Join(err, checkConsumer(consumer)); err == nil {
		err = a.underAllNames(ctx, st, db, consumer, func(tx bun.Tx, names []string) error {
			open, err := st.Flow.ProbeBreaker(ctx, tx, names)
			if err == nil && !open {
				err = ErrNotOpen
			}
			return err
		})
	}
	return dberr.Wrap(err, "admin: probe %q", consumer)
}
