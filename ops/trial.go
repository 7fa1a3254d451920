package ops

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

const (
	trialTime = 10 * time.Minute // for canaries to have run

	badPart   = 10              // one of so many may fail again
	leastSeen = 20              // messages before an operation goes by how many have failed again
	backEvery = 2 * time.Second // looks at that
)

// trial tells how those do that were requeued first.
type trial struct {
	IDs   []int64   `json:"ids,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// From is the lowest id of all that were requeued.
	From int64 `json:"from,omitempty"`
}

func trialOf(row store.Operation) (t trial) {
	if len(row.Canaries) > 0 {
		_ = json.Unmarshal(row.Canaries, &t) // it is our own
	}
	return t
}

// tried tells whether all canaries of an operation are under way.
func tried(row store.Operation) bool {
	return row.State == string(Trying) && len(trialOf(row).IDs) >= int(row.Canary)
}

// add notes messages that were requeued, and tells whether there is anything to note.
func (t *trial) add(row store.Operation, done moved, first bool) bool {
	if len(done.ids) == 0 || !first && t.From != 0 {
		return false
	}
	if t.From == 0 {
		t.From, t.Since = done.ids[0], row.Now.Time
	}
	if first {
		t.IDs = append(t.IDs, done.ids...)
	}
	return true
}

// judge looks at canaries: all goes on once they have run, unless too many of them fail again, or they
// take too long.
func (w *work) judge(ctx context.Context, row store.Operation) error {
	t := trialOf(row)
	failed, waiting, err := w.desk.store.Fates(ctx, w.desk.config.DB, t.IDs)
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

// comesBack pauses an operation when more than a tenth of what it has requeued is poisoned again for
// the same failure.
func (w *work) comesBack(ctx context.Context, row store.Operation) (bool, error) {
	var target Target
	t := trialOf(row)
	if err := json.Unmarshal(row.Target, &target); err != nil || target.Poisoned == nil || t.From == 0 || row.Changed < leastSeen || time.Since(w.looked) < backEvery {
		return false, nil
	}
	w.looked = time.Now()
	f := target.Poisoned
	if f.Consumer == "" || f.Fingerprint == "" || f.Fingerprint == poison.Unclassified {
		return false, nil
	}
	n, err := w.desk.store.CountPoisoned(ctx, w.desk.config.DB, store.PoisonFilter{Consumer: f.Consumer, Fingerprint: f.Fingerprint, AfterID: t.From - 1}, int(row.Changed/badPart)+1)
	if err != nil || int64(n)*badPart <= row.Changed {
		return false, err
	}
	return true, w.pause(ctx, fmt.Sprintf("at least %d of %d have failed again in the same way", n, row.Changed))
}
