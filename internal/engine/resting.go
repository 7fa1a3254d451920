package engine

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// maxResting is of how many lanes is known when their rates allow more. Scans find the others.
const maxResting = 10_000

// resting are lanes that have more messages than their rates have allowed, the soonest first.
type resting []rests

type rests struct {
	lane int64
	till time.Time
}

func (all *resting) add(lanes []store.SpentLane, now time.Time) {
	for _, s := range lanes {
		if len(*all) == maxResting {
			return
		}
		r := rests{s.Lane, now.Add(s.Wait)}
		i, _ := slices.BinarySearchFunc(*all, r, func(a, b rests) int { return a.till.Compare(b.till) })
		*all = slices.Insert(*all, i, r)
	}
}

// take takes out lanes whose rates allow more now.
func (all *resting) take(now time.Time, most int) (lanes []int64) {
	for len(*all) > 0 && len(lanes) < most && !now.Before((*all)[0].till) {
		lanes, *all = append(lanes, (*all)[0].lane), (*all)[1:]
	}
	return lanes
}

// sooner is the given instant, or when the first of them rests no more, if that comes before.
func (all resting) sooner(at time.Time) time.Time {
	if len(all) > 0 && all[0].till.Before(at) {
		return all[0].till
	}
	return at
}
