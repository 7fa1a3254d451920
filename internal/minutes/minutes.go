package minutes

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Histogram counts durations in buckets: up to 1, 2, 5, 10, 25, 50, 100, 250, 500 ms, 1 s, 10 s,
// and longer.
type Histogram [store.Buckets]int64

// Quantile returns the upper bound of the bucket with the given quantile, 0.99 for instance. Longer
// than 10 s counts as an hour, the longest timeout allowed. An empty histogram returns 0.
func (h Histogram) Quantile(part float64) time.Duration {
	var all, sum int64
	for _, n := range h {
		all += n
	}
	if all == 0 {
		return 0
	}
	for i, bound := range store.Bounds() {
		if sum += h[i]; float64(sum) >= part*float64(all) {
			return bound
		}
	}
	return time.Hour
}

// Stats counts the outcomes of a consumer's messages in one minute, across all processes.
type Stats struct {
	Consumer  string    `json:"consumer"`
	At        time.Time `json:"at"` // start of the minute
	Done      int64     `json:"done"`
	Retried   int64     `json:"retried"`
	Poisoned  int64     `json:"poisoned"`
	Snoozed   int64     `json:"snoozed"`
	Discarded int64     `json:"discarded"`
	Run       Histogram `json:"run"` // how long the runs took
	Lag       Histogram `json:"lag"` // time from due to start
}

// Read returns the statistics of the given consumers, or of all, within the given time, by consumer
// and time. Minutes without runs are left out. A run counts in the minute in which its process
// reported it, which may be the next one. Statistics are kept for 48 hours.
func Read(ctx context.Context, db bun.IDB, st *store.Store, within time.Duration, consumers ...string) ([]Stats, error) {
	rows, err := st.Reports.Minutes(ctx, db, within, consumers)
	if err != nil {
		return nil, dberr.Wrap(err, "admin: minutes")
	}
	return store.Each(rows, func(row store.Minute) Stats {
		return Stats{
			Consumer: row.ConsumerType, At: row.At.Time, Done: row.Done, Retried: row.Retried, Poisoned: row.Poisoned,
			Snoozed: row.Snoozed, Discarded: row.Discarded, Run: row.Run, Lag: row.Lag,
		}
	}), nil
}
