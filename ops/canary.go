package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	trialTime = 10 * time.Minute // in which canaries should run

	badPart     = 10              // one in this many may fail again
	leastSeen   = 20              // requeued messages before failures are judged
	mostSampled = 500             // size of the sample
	backEvery   = 2 * time.Second // between checks of the sample
)

// trial tracks what becomes of requeued messages.
type trial struct {
	IDs   []int64   `json:"ids,omitempty"` // of the canaries
	Since time.Time `json:"since,omitzero"`
	// Sample are ids of the requeued messages: all of them, or every Each-th if there are many.
	Sample []int64 `json:"sample,omitempty"`
	Each   int     `json:"each,omitempty"`
	Seen   int     `json:"seen,omitempty"`
}

func trialOf(row store.Operation) (t trial) {
	if len(row.Canaries) > 0 {
		_ = json.Unmarshal(row.Canaries, &t) // written by this library
	}
	return t
}

// tried reports whether all canaries of an operation are requeued.
func tried(row store.Operation) bool {
	return row.State == string(Canary) && len(trialOf(row).IDs) >= int(row.Canary)
}

// add records requeued messages and reports whether there were any.
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

// sample keeps an evenly spread sample of the ids.
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

// longCanary explains that canaries take long. The text is empty if they do not. The operation waits for
// them: it continues once they have run, however late.
func longCanary(row store.Operation) string {
	if !tried(row) || row.Now.Sub(trialOf(row).Since) <= trialTime {
		return ""
	}
	return fmt.Sprintf("not all of the %d canary messages have run within %s", row.Canary, roughly(trialTime))
}

// judge checks the canaries. The operation continues once they have run, and pauses if too many
// failed again.
func (w *work) judge(ctx context.Context, row store.Operation) error {
	t := trialOf(row)
	failed, waiting, err := w.service.store.Operations.Fates(ctx, w.service.config.DB, t.IDs)
	if err != nil {
		return err
	}
	switch {
	case failed*badPart > len(t.IDs):
		return w.pause(ctx, fmt.Sprintf("%d of %d canary messages failed again", failed, len(t.IDs)))
	case waiting == 0:
		return w.change(ctx, store.OperationChange{State: string(Running), Lease: lease})
	default:
		return w.change(ctx, store.OperationChange{Lease: lease})
	}
}

// comesBack pauses an operation if more than a tenth of the sampled messages are poisoned again.
func (w *work) comesBack(ctx context.Context, row store.Operation) (bool, error) {
	t := trialOf(row)
	if len(t.Sample) < leastSeen || time.Since(w.looked) < backEvery {
		return false, nil
	}
	w.looked = time.Now()
	n, err := w.service.store.Poison.Count(ctx, w.service.config.DB, store.PoisonFilter{IDs: t.Sample}, len(t.Sample))
	if err != nil || n*badPart <= len(t.Sample) {
		return false, err
	}
	of := "requeued"
	if t.Each > 1 {
		of += " and sampled"
	}
	return true, w.pause(ctx, fmt.Sprintf("%d of %d %s messages are poisoned again", n, len(t.Sample), of))
}
