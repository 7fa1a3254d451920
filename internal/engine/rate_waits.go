package engine

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// A claim spends the rate of its consumer in the database: see store.ClaimRequest.Rate. The next
// claim returns what was counted for messages that did not start. It does so even if it brings
// nothing: what is returned later than it was used would add to what the rate has regained by then.

// rateAhead is how long messages that a rate has counted may wait for a worker.
const rateAhead = 25 * time.Millisecond

// rateWaits sums up how long a rate kept a process from claiming.
type rateWaits struct {
	mu       sync.Mutex
	sum      time.Duration // without the last period
	from, to time.Time     // the last period, which may not be over
}

// begin begins a period and ends the one before.
func (s *rateWaits) begin(now, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sum, s.from, s.to = s.totalLocked(now), now, until
}

// total returns the sum up to now.
func (s *rateWaits) total(now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.totalLocked(now)
}

func (s *rateWaits) totalLocked(now time.Time) time.Duration {
	if now.After(s.to) {
		now = s.to
	}
	return s.sum + max(now.Sub(s.from), 0)
}

// unstarted notes that a claimed message did not start, although rates counted it. The next claim
// returns that to the rates. The rate of the consumer does not count crashed messages, that of a key
// does.
func (d *dispatcher) unstarted(t *task) {
	c := t.consumer
	counted := c.rate != nil && t.row.Crashes == 0
	if !counted && c.settings.KeyRate == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if counted {
		c.unused++
		if c.failures == 0 {
			c.notBefore = time.Time{}
		}
		c.activate()
	}
	for _, l := range c.lanes {
		l.notBefore = time.Time{}
		if l.KeyRate != nil && t.row.Lane != 0 && l.Name == t.row.ConsumerType {
			l.unused[t.row.Lane]++
			l.free([]int64{t.row.Lane}, d.config.BatchSize)
		}
	}
	d.room.Signal()
}

// dropUnused forgets what the claim may have returned to rates. Returned twice, a rate would allow too much.
func (plan *claimPlan) dropUnused() {
	plan.request.Unused = 0
	if plan.request.Lanes != nil {
		plan.request.Lanes.Unused = nil
	}
}

// keepUnused keeps what a failed claim was to return to rates. The next one does.
func (plan claimPlan) keepUnused() {
	if len(plan.parts) == 0 {
		return
	}
	p := plan.parts[0]
	p.consumer.unused += plan.request.Unused
	if p.lanes != nil {
		for lane, n := range plan.request.Lanes.Unused {
			p.lanes.unused[lane] += n
		}
	}
}

// endRates returns what is unused of rates at a stop, while the last results are settled. wait waits for
// that.
func (r *run) endRates() (wait func()) {
	r.dispatcher.catalog.endRateWaits(time.Now())
	returned := background(func() { _ = r.returnUnused(stopGrace) }) // rates regain what stays spent
	return func() { <-returned }
}

// returnUnused returns what is left to return, in claims of nothing, since no other claim follows.
func (r *run) returnUnused(within time.Duration) error {
	ctx, cancel := context.WithTimeout(r.ctx, within)
	defer cancel()
	return returnAll(ctx, r.processor.store, r.processor.db, r.dispatcher.takeUnused(func(*consumer) bool { return true }))
}

func returnAll(ctx context.Context, s *store.Store, db *bun.DB, requests []store.ClaimRequest) (err error) {
	for _, request := range requests {
		_, failed := s.Claims.Claim(ctx, db, request)
		err = errors.Join(err, failed)
	}
	return err
}

// takeUnused returns claims of nothing that return what no claim has returned for some consumers. It is
// returned once, also if a claim fails, since that may have been committed.
func (d *dispatcher) takeUnused(of func(*consumer) bool) (requests []store.ClaimRequest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.catalog.consumers {
		if !of(c) {
			continue
		}
		if c.unused > 0 {
			requests = append(requests, store.ClaimRequest{Rate: c.rate, Unused: c.unused})
			c.unused = 0
		}
		for _, l := range c.lanes {
			if len(l.unused) > 0 {
				requests = append(requests, store.ClaimRequest{Lanes: &store.Lanes{Source: l.Source, Unused: maps.Clone(l.unused)}})
				clear(l.unused)
			}
		}
	}
	return requests
}
