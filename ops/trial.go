package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	trialTime = 10 * time.Minute // for canaries to have run

	badPart     = 10              // one of so many may fail again
	leastSeen   = 20              // messages before an operation goes by how many have failed again
	mostSampled = 500             // messages that are looked at for that
	backEvery   = 2 * time.Second // looks at that
)

// trial is how the requeued messages do.
type trial struct {
	IDs   []int64   `json:"ids,omitempty"` // of those that went first
	Since time.Time `json:"since,omitzero"`
	// Sample are ids of all that were requeued: every one, or once these are many each so many-th.
	Sample []int64 `json:"sample,omitempty"`
	Each   int     `json:"each,omitempty"`
	Seen   int     `json:"seen,omitempty"`
}

func trialOf(row store.Operation) (t trial) {
	if len(row.Canaries) > 0 {
		_ = json.Unmarshal(row.Canaries, &t) // it is our own
	}
	return t
}

// tried reports whether all canaries of an operation are under way.
func tried(row store.Operation) bool {
	return row.State == string(Canary) && len(trialOf(row).IDs) >= int(row.Canary)
}

// add notes messages that were requeued, and reports whether there is anything to note.
func (t *trial) add(row store.Operation, done moved, first bool) bool {
	if len(done.ids) == 0 {
		return false
	}
	if first {
		t.IDs = append(t.IDs, done.ids...)
	}
	if t.Since.IsZero() {
		t.Since = row.Now.Time
	}
	for _, id := range done.ids {
		t.sample(id)
	}
	return true
}

// sample keeps ids evenly spread over all.
func (t *trial) sample(id int64) {
	t.Each = max(t.Each, 1)
	if t.Seen%t.Each == 0 {
		t.Sample = append(t.Sample, id)
	}
	t.Seen++
	if len(t.Sample) <= mostSampled {
		return
	}
	half := t.Sample[:0]
	for i := 0; i < len(t.Sample); i += 2 {
		half = append(half, t.Sample[i])
	}
	t.Sample, t.Each = half, 2*t.Each
}

// judge looks at canaries: all goes on once they have run, unless too many of them fail again, or they
// take too long.
func (w *work) judge(ctx context.Context, row store.Operation) error {
	t := trialOf(row)
	failed, waiting, err := w.service.store.Fates(ctx, w.service.config.DB, t.IDs)
	if err != nil {
		return err
	}
	switch {
	case failed*badPart > len(t.IDs):
		return w.pause(ctx, fmt.Sprintf("%d of the %d that went first have failed again", failed, len(t.IDs)))
	case waiting == 0:
		return w.change(ctx, store.OperationChange{State: string(Running), Lease: lease})
	case row.Now.Sub(t.Since) > trialTime:
		return w.pause(ctx, fmt.Sprintf("%d of the %d that went first have not run within %s", waiting, len(t.IDs), trialTime))
	default:
		return w.change(ctx, store.OperationChange{Lease: lease})
	}
}

// comesBack pauses an operation when more than a tenth of what it has requeued is poisoned again.
func (w *work) comesBack(ctx context.Context, row store.Operation) (bool, error) {
	t := trialOf(row)
	if len(t.Sample) < leastSeen || time.Since(w.looked) < backEvery {
		return false, nil
	}
	w.looked = time.Now()
	n, err := w.service.store.CountPoisoned(ctx, w.service.config.DB, store.PoisonFilter{IDs: t.Sample}, len(t.Sample))
	if err != nil || n*badPart <= len(t.Sample) {
		return false, err
	}
	of := "that were requeued"
	if t.Each > 1 {
		of += " and were looked at"
	}
	return true, w.pause(ctx, fmt.Sprintf("%d of the %d %s are poisoned again", n, len(t.Sample), of))
}
