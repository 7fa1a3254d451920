package console

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// projectionsPage is all projections, and how far they have come.
type projectionsPage struct {
	Unsupported bool
	Found       versions
}

func (*projectionsPage) read(*params) {}

func (p *projectionsPage) load(r *request) (err error) {
	p.Found, err = loadVersions(r)
	if errors.Is(err, errors.ErrUnsupported) {
		p.Unsupported, err = true, nil
	}
	return err
}

func (*projectionsPage) layout() layout { return layout{title: "Projections", tab: "projections"} }

// version is one version of a projection.
type version struct {
	Name    string
	Version int
	Active  bool
	Shards  []shard
	Works   bool // a live process has it
	Halted  int
}

// Title names it in a sentence.
func (v version) Title() string { return fmt.Sprintf("%s, version %d", v.Name, v.Version) }

// shard is how far a part of it has come, and how fast.
type shard struct {
	operator.ProjectionState
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

// versions are all versions of all projections.
type versions []version

func loadVersions(r *request) (all versions, err error) {
	states, err := r.session.Projections().List(r.Context())
	if err != nil {
		return nil, err
	}
	fleet, err := r.session.Processes(r.Context(), fleetTime)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, s := range states {
		i := all.index(s.Name, s.Version)
		if i < 0 {
			all = append(all, version{Name: s.Name, Version: s.Version, Active: s.Active, Works: works(fleet, s)})
			i = len(all) - 1
		}
		one := shard{ProjectionState: s, PerSecond: r.speeds.of(s, now)}
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

func (all versions) index(name string, number int) int {
	return slices.IndexFunc(all, func(v version) bool { return v.Name == name && v.Version == number })
}

func (all versions) of(name string, number int) (version, error) {
	i := all.index(name, number)
	if i < 0 {
		return version{}, httpError{http.StatusNotFound, "No projection has this name and version."}
	}
	return all[i], nil
}

const halted = "halted"

func works(fleet []admin.Process, s operator.ProjectionState) bool {
	return slices.ContainsFunc(fleet, func(p admin.Process) bool {
		return p.Status == admin.ProcessAlive && slices.Contains(p.Projections, fmt.Sprintf("%s/%d", s.Name, s.Version))
	})
}
