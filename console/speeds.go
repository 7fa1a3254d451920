package console

import (
	"fmt"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// speeds measures how fast shards move between two requests. Its zero value is ready.
type speeds struct {
	mu   sync.Mutex
	seen map[string]seen
}

type seen struct {
	position  int64
	at        time.Time
	perSecond float64
}

const (
	leastBetween = time.Second      // for a speed to be exact enough
	mostBetween  = 10 * time.Minute // for it to be of use
	mostShards   = 10_000
)

// of is how many positions of a shard pass in a second, or 0 where that is not known yet.
func (s *speeds) of(state operator.ProjectionState, now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprintf("%s/%d/%d", state.Name, state.Version, state.Shard)
	last, known := s.seen[key]
	age := now.Sub(last.at)
	if known && age < leastBetween {
		return last.perSecond
	}
	next := seen{position: state.Position, at: now}
	if known && age < mostBetween {
		next.perSecond = max(0, float64(state.Position-last.position)/age.Seconds())
	}
	if s.seen == nil || len(s.seen) >= mostShards {
		s.seen = map[string]seen{}
	}
	s.seen[key] = next
	return next.perSecond
}
