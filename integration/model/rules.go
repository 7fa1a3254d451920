package model

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Rules bound what may run of a consumer, and in which order.
type Rules struct {
	Keyed   bool        // its messages have keys
	Parks   bool        // what is poisoned keeps those of its key from running
	PerKey  int         // how many of a key may be claimed at once, in any order; zero is in order
	Rate    *store.Rate // of all messages
	KeyRate *store.Rate // of each key
}

// rulesOf are the rules of a consumer, which are the same in every run.
func rulesOf(consumer string) (r Rules) {
	rate := &store.Rate{Name: consumer, N: 1, Per: time.Second, Burst: 2}
	switch consumer {
	case "paced":
		r.Rate = rate
	case "parks":
		r = Rules{Keyed: true, Parks: true}
	case "skips":
		r = Rules{Keyed: true, Rate: rate}
	case "shared":
		r = Rules{Keyed: true, PerKey: 2}
	case "rated":
		r = Rules{Keyed: true, PerKey: store.Unbounded, KeyRate: rate}
	case "slow":
		r = Rules{Keyed: true, Parks: true, KeyRate: rate}
	}
	return r
}

// gated tells whether such claims are made one after the other. What has crashed does not count
// for a rate.
func (r Request) gated() bool {
	rules := rulesOf(r.Consumers[0])
	return rules.Keyed || rules.Rate != nil && r.Select == store.Clean
}

// anyOrder tells whether a database needs more than order by keys.
func (r Rules) anyOrder() bool { return r.PerKey > 0 || r.KeyRate != nil }

// groups are the consumers that are claimed for together.
func groups(anyOrder bool) [][]string {
	all := [][]string{consumers(), {"paced"}, {"parks"}, {"skips"}, {"shared"}, {"rated"}, {"slow"}}
	return slices.DeleteFunc(all, func(group []string) bool { return !anyOrder && rulesOf(group[0]).anyOrder() })
}

// orderKeys are few, so that messages meet.
func orderKeys() []string { return []string{"k", "l", "m"} }

// lane is what the messages of a consumer with one key share.
type lane struct{ consumer, orderKey string }

// Slots is how many slots the limit has.
const Slots = 2

// Slot is who has a slot, and until when unless he renews it.
type Slot struct {
	Owner string
	Until time.Duration
}
