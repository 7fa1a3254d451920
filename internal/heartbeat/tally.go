package heartbeat

import (
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errtype"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Tally counts runs of a consumer. The nil Tally counts nothing. It is safe for concurrent use.
type Tally struct {
	mu  sync.Mutex
	sum store.Tally
	any bool
}

// Tally returns the tally of a consumer.
func (r *Reporter) Tally(consumer string) *Tally {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tallies[consumer]
	if t == nil {
		t = new(Tally)
		r.tallies[consumer] = t
	}
	return t
}

// bucket returns the index of the histogram bucket for a duration.
func bucket(d time.Duration) int {
	bounds := store.Bounds()
	for i, bound := range bounds {
		if d <= bound {
			return i
		}
	}
	return len(bounds)
}

// Ran counts a run with its duration and how late after the message's due time it began.
func (t *Tally) Ran(outcome bus.Outcome, took, late time.Duration) {
	if t == nil {
		return
	}
	run, lag := bucket(took), bucket(late)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch outcome {
	case bus.Done:
		t.sum.Done++
	case bus.Discarded:
		t.sum.Discarded++
	case bus.Retried, bus.Condemned: // bus.Condemned: no layer applied it
		t.sum.Retried++
	case bus.Poisoned:
		t.sum.Poisoned++
	case bus.Snoozed, bus.Errored:
		t.sum.Snoozed++
	default:
		return
	}
	t.any = true
	t.sum.Run[run]++
	t.sum.Lag[lag]++
}

// take returns and resets the counts.
func (t *Tally) take() (sum store.Tally, any bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum, any = t.sum, t.any
	t.sum, t.any = store.Tally{}, false
	return sum, any
}

func (t *Tally) add(sum *store.Tally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.Add(sum)
	t.any = true
}

// group is what related failures have in common.
type group struct{ consumer, fingerprint string }

// Failed counts a failed run in its group. The fingerprint is that of its error.
func (r *Reporter) Failed(consumer, fingerprint string, err error, row int64) {
	if r == nil {
		return
	}
	sample, kind, now := errorlog.Text(err), errtype.Of(err), time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.join(store.FailureGroup{
		ConsumerType: consumer, Fingerprint: fingerprint, ErrorType: kind, Sample: sample, Runs: 1, First: now, Last: now,
		FirstVersion: r.process.Version, RowID: row,
	})
}

// join adds to a group; the caller holds mu. Beyond maxGroups new failures share one group.
func (r *Reporter) join(f store.FailureGroup) {
	key := group{f.ConsumerType, f.Fingerprint}
	if r.groups[key] == nil && len(r.groups) >= maxGroups {
		f = f.AsRest()
		key.fingerprint = f.Fingerprint
	}
	if known := r.groups[key]; known != nil {
		f.Runs, f.First = f.Runs+known.Runs, known.First
	}
	r.groups[key] = &f
}

// take returns and resets what was counted since the last time.
func (r *Reporter) take() (minutes []store.Minute, failures []store.FailureGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for consumer, tally := range r.tallies {
		if sum, any := tally.take(); any {
			minutes = append(minutes, store.Minute{ConsumerType: consumer, Tally: sum})
		}
	}
	for _, f := range r.groups {
		failures = append(failures, *f)
	}
	clear(r.groups)
	return minutes, failures
}

// putBack keeps what was taken for the next report.
func (r *Reporter) putBack(minutes []store.Minute, failures []store.FailureGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range minutes {
		r.tallies[minutes[i].ConsumerType].add(&minutes[i].Tally)
	}
	for _, f := range failures {
		if newer := r.groups[group{f.ConsumerType, f.Fingerprint}]; newer != nil { // the newer sample is kept
			newer.Runs, newer.First = newer.Runs+f.Runs, f.First
			continue
		}
		r.join(f)
	}
}
