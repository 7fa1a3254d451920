package engine

import (
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
)

// reservedIDs is how many ids of messages are reserved in one statement. They are once or twice in
// reserve.
const reservedIDs = 1000

// idReserve holds ids of messages that are not used yet.
type idReserve struct {
	low chan struct{} // of size 1: more are needed

	mu   sync.Mutex
	ids  handoff.IDs
	kept time.Time // refused ids are kept until then
}

// take removes and returns n ids, or none if there are not as many.
func (r *idReserve) take(n int) (taken handoff.IDs) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids.IDs) < reservedIDs {
		select {
		case r.low <- struct{}{}:
		default: // there is a signal already
		}
	}
	if len(r.ids.IDs) < n {
		return taken
	}
	taken = handoff.IDs{IDs: r.ids.IDs[:n:n], Origin: r.ids.Origin}
	r.ids.IDs = r.ids.IDs[n:]
	return taken
}

// add adds ids. Those of another origin are dropped.
func (r *idReserve) add(ids handoff.IDs) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ids.Origin != r.ids.Origin {
		r.ids = ids
		return
	}
	r.ids.IDs = append(r.ids.IDs, ids.IDs...)
}

// refused drops ids of an origin under which a write failed: after a restart of the server it is no
// longer the database's. It does so at most once per handOffRest, because the error may have another
// cause, such as a search_path that leads one transaction to another table.
func (r *idReserve) refused(origin string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if origin == r.ids.Origin && !now.Before(r.kept) {
		r.ids.IDs, r.kept = nil, now.Add(handOffRest)
	}
}
