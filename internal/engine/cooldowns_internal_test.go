package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func TestLanesCoolDownUntilTheirRatesAllowMore(t *testing.T) {
	t.Parallel()
	var all cooldowns
	now := time.Now()
	all.add([]store.SpentLane{{Lane: 3, Wait: 3 * time.Second}, {Lane: 1, Wait: time.Second}, {Lane: 2, Wait: 2 * time.Second}}, now)
	if at := all.sooner(now.Add(time.Hour)); !at.Equal(now.Add(time.Second)) {
		t.Errorf("the first: got it in %s, want 1s", at.Sub(now))
	}
	if at := all.sooner(now); !at.Equal(now) {
		t.Errorf("what comes before them: got %s from now, want now", at.Sub(now))
	}
	for _, step := range []struct {
		after time.Duration
		most  int
		want  []int64
	}{{0, 5, nil}, {2 * time.Second, 1, []int64{1}}, {2 * time.Second, 5, []int64{2}}, {time.Minute, 5, []int64{3}}, {time.Minute, 5, nil}} {
		if got := all.take(now.Add(step.after), step.most); !slices.Equal(got, step.want) {
			t.Errorf("after %s, at most %d: got lanes %v, want %v", step.after, step.most, got, step.want)
		}
	}
	all.add(make([]store.SpentLane, maxCooldowns+1), now)
	if len(all) != maxCooldowns {
		t.Errorf("got %d lanes, want %d at most", len(all), maxCooldowns)
	}
}
