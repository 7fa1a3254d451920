package console

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
)

// projectionsPage is all projections, and how far they have come.
type projectionsPage struct {
	Unsupported bool
	Found       []version
}

// version is one version of a projection.
type version struct {
	Name    string
	Version int
	Active  bool
	Shards  []shard
	Works   bool // a live process has it
	Halted  int
}

// shard is how far a part of it has come, and how fast.
type shard struct {
	projection.State
	PerSecond float64       // 0: not known
	ToGo      time.Duration // 0: not known
}

// Behind is how many positions of the log it has before it.
func (s shard) Behind() int64 { return max(0, s.Head-s.Position) }

// Done is how much of the log it is past, of 1000.
func (s shard) Done() int64 {
	if s.Head <= 0 {
		return 1000
	}
	return min(1000, s.Position*1000/s.Head)
}

// Title names it in a sentence.
func (v version) Title() string { return fmt.Sprintf("%s, version %d", v.Name, v.Version) }

func (v *request) projections() (page, error) {
	data := projectionsPage{}
	found, err := v.versions()
	if errors.Is(err, errors.ErrUnsupported) {
		data.Unsupported, err = true, nil
	}
	data.Found = found
	return page{Title: "Projections", Tab: "projections", Data: data}, err
}

// versions are all versions of all projections.
func (v *request) versions() (all []version, err error) {
	states, err := v.session.Projections().List(v.ctx())
	if err != nil {
		return nil, err
	}
	fleet, err := v.session.Processes(v.ctx(), fleetTime)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, s := range states {
		i := slices.IndexFunc(all, func(v version) bool { return v.Name == s.Name && v.Version == s.Version })
		if i < 0 {
			all = append(all, version{Name: s.Name, Version: s.Version, Active: s.Active, Works: works(fleet, s)})
			i = len(all) - 1
		}
		one := shard{State: s, PerSecond: v.speeds.of(s, now)}
		if one.PerSecond > 0 {
			one.ToGo = time.Duration(float64(one.Behind()) / one.PerSecond * float64(time.Second))
		}
		if s.Status == halted {
			all[i].Halted++
		}
		all[i].Shards = append(all[i].Shards, one)
	}
	return all, nil
}

const halted = "halted"

func works(fleet []admin.Process, s projection.State) bool {
	return slices.ContainsFunc(fleet, func(p admin.Process) bool {
		return p.Status == admin.ProcessAlive && slices.Contains(p.Projections, fmt.Sprintf("%s/%d", s.Name, s.Version))
	})
}

// projectionPage is one version of a projection, with what it has put aside.
type projectionPage struct {
	version
	Parked []projection.Parked
	Next   string
	First  string
}

func (v *request) projection() (page, error) {
	a := v.asks()
	name, number, after := a.text("name"), a.small("version", 1<<31-1, 1), a.id("after")
	if err := a.err(); err != nil {
		return page{}, err
	}
	all, err := v.versions()
	if err != nil {
		return page{}, err
	}
	i := slices.IndexFunc(all, func(v version) bool { return v.Name == name && v.Version == number })
	if i < 0 {
		return page{}, httpError{404, "There is no such version of a projection."}
	}
	data := projectionPage{version: all[i]}
	if data.Parked, err = v.session.Projections().Parked(v.ctx(), name, number, after, pageSize+1); err != nil {
		return page{}, err
	}
	if len(data.Parked) > pageSize {
		data.Parked = data.Parked[:pageSize]
		data.Next = linkTo("projection", "name", name, "version", number, "after", data.Parked[pageSize-1].Position).String()
	}
	if after > 0 {
		data.First = linkTo("projection", "name", name, "version", number).String()
	}
	return page{Title: "Projection " + data.Title(), Tab: "projections", Data: data}, nil
}

// speeds measures how fast shards come on, from one look to the next. Its zero value is ready.
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
	betweenLooks = time.Second      // at least, for a speed to be true
	forgetLook   = 10 * time.Minute // after this it is too old
	mostShards   = 10_000
)

// of is how many positions of a shard pass in a second, or 0 where that is not known yet.
func (s *speeds) of(state projection.State, now time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := fmt.Sprintf("%s/%d/%d", state.Name, state.Version, state.Shard)
	last, known := s.seen[key]
	age := now.Sub(last.at)
	if known && age < betweenLooks {
		return last.perSecond
	}
	next := seen{position: state.Position, at: now}
	if known && age < forgetLook {
		next.perSecond = max(0, float64(state.Position-last.position)/age.Seconds())
	}
	if s.seen == nil || len(s.seen) >= mostShards {
		s.seen = map[string]seen{}
	}
	s.seen[key] = next
	return next.perSecond
}
