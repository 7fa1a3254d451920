package engine

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// maxCooldowns bounds the known cooldowns. Scans find the others.
const maxCooldowns = 10_000

// cooldowns is the lanes with more messages than their rates allow now, the soonest first.
type cooldowns []cooldown

type cooldown struct {
	lane int64
	till time.Time
}

func (all *cooldowns) add(lanes []store.SpentLane, now time.Time) {
	for _, s := range lanes {
		if len(*all) == maxCooldowns {
			return
		}
		r := cooldown{s.Lane, now.Add(s.Wait)}
		i, _ := slices.BinarySearchFunc(*all, r, func(a, b cooldown) int { return a.till.Compare(b.till) })
		*all = slices.Insert(*all, i, r)
	}
}

// take removes and returns lanes whose rates allow more now.
func (all *cooldowns) take(now time.Time, most int) (lanes []int64) {
	for len(*all) > 0 && len(lanes) < most && !now.Before((*all)[0].till) {
		lanes, *all = append(lanes, (*all)[0].lane), (*all)[1:]
	}
	return lanes
}

// sooner returns at, or when the first cooldown ends if that is earlier.
func (all cooldowns) sooner(at time.Time) time.Time {
	if len(all) > 0 && all[0].till.Before(at) {
		return all[0].till
	}
	return at
}
