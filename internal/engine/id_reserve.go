package engine

import "sync"

// reservedIDs is how many ids of messages are reserved in one statement. They are once or twice in
// reserve.
const reservedIDs = 1000

// idReserve holds ids of messages that are not used yet.
type idReserve struct {
	low chan struct{} // of size 1: more are needed

	mu  sync.Mutex
	ids []int64
}

// take removes and returns n ids, or none if there are not as many.
func (r *idReserve) take(n int) []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ids) < reservedIDs {
		select {
		case r.low <- struct{}{}:
		default: // there is a signal already
		}
	}
	if len(r.ids) < n {
		return nil
	}
	taken := r.ids[:n:n]
	r.ids = r.ids[n:]
	return taken
}

func (r *idReserve) add(ids []int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ids = append(r.ids, ids...)
}
