package ops

import (
	"encoding/json"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// pinnedTarget is the stored form of a target, with the ids of the messages, or the positions of the
// parked events, that it was planned for.
type pinnedTarget struct {
	Target
	Pinned pins `json:"pinned,omitempty"`
}

// pins are ids in ascending order. They are stored as differences, which are shorter.
type pins []int64

// MarshalJSON implements json.Marshaler.
func (p pins) MarshalJSON() ([]byte, error) {
	differences := make([]int64, len(p))
	last := int64(0)
	for i, id := range p {
		differences[i], last = id-last, id
	}
	return json.Marshal(differences)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *pins) UnmarshalJSON(text []byte) error {
	var ids []int64
	if err := json.Unmarshal(text, &ids); err != nil {
		return err
	}
	for i := 1; i < len(ids); i++ {
		ids[i] += ids[i-1]
	}
	*p = ids
	return nil
}

// behind returns the next ids after one, and whether there are more.
func (p pins) behind(after int64, limit int) (next []int64, more bool) {
	from, found := slices.BinarySearch(p, after)
	if found {
		from++
	}
	to := min(from+limit, len(p))
	return p[from:to], to < len(p)
}

func pendingRows(f admin.Filter) store.PendingFilter {
	states := map[admin.State]store.PendingState{admin.Ready: store.Ready, admin.Delayed: store.Delayed, admin.Leased: store.Leased}
	return store.PendingFilter{
		Consumer: f.Consumer, PayloadType: f.PayloadType, InsertID: f.InsertID, Key: f.OrderingKey, MessageID: f.MessageID,
		State: states[f.State], Crashed: f.Crashed, Retrying: f.Retrying, OlderThan: f.OlderThan,
	}
}
