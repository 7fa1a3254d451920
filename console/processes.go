package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// processesPage is which processes work or were lost, what they hold, and which versions take what.
type processesPage struct {
	Alive      int                // programs
	Programs   []operator.Program // lost and alive
	Stopped    []operator.Program // within a day, in order
	Claims     []claim            // the oldest
	MoreClaims int
	Versions   []string
	Matrix     []matrixRow
}

// claim is what a process holds.
type claim struct {
	admin.Claim
	Owner *admin.Process // nil: it is not known
}

// matrixRow is, of a consumer, how many live processes of each version take it.
type matrixRow struct {
	Consumer  string
	Processes []int
}

const (
	fleetTime   = 24 * time.Hour // processes that were not seen for longer are left out
	claimsShown = 200
)

func (*processesPage) read(*params) {}

func (p *processesPage) load(r *request) error {
	fleet, err := r.session.Processes(r.Context(), fleetTime)
	if err != nil {
		return err
	}
	claims, err := r.session.Consumers().Claims(r.Context())
	p.set(fleet, claims)
	return err
}

func (p *processesPage) set(fleet []admin.Process, claims []admin.Claim) {
	p.MoreClaims = max(0, len(claims)-claimsShown)
	for _, program := range operator.Programs(fleet) {
		if program.Status == admin.ProcessStopped {
			p.Stopped = append(p.Stopped, program)
			continue
		}
		p.Programs = append(p.Programs, program)
		if program.Status == admin.ProcessAlive {
			p.Alive++
		}
	}
	for _, c := range claims[:min(len(claims), claimsShown)] {
		p.Claims = append(p.Claims, claim{c, processOf(fleet, c.Owner)})
	}
	p.Versions, p.Matrix = matrix(fleet)
}

func (*processesPage) layout() layout { return layout{title: "Processes", tab: "processes"} }

// processOf is the process with that id, or nil.
func processOf(fleet []admin.Process, id string) *admin.Process {
	if i := slices.IndexFunc(fleet, func(p admin.Process) bool { return p.ID == id }); i >= 0 {
		return &fleet[i]
	}
	return nil
}

// taker is a process that takes a consumer's messages.
type taker struct {
	admin.Process
	Consumer admin.ProcessConsumer
}

// takersOf are the processes that take a consumer's messages, alive or lost.
func takersOf(fleet []admin.Process, name string) (takers []taker) {
	for _, p := range fleet {
		for _, c := range p.Consumers {
			if p.Status != admin.ProcessStopped && (c.Name == name || slices.Contains(c.Former, name)) {
				takers = append(takers, taker{p, c})
			}
		}
	}
	return takers
}

// matrix counts live processes by consumer and version.
func matrix(fleet []admin.Process) (versions []string, rows []matrixRow) {
	counts := map[string]map[string]int{}
	for _, p := range fleet {
		if p.Status != admin.ProcessAlive || len(p.Consumers) == 0 {
			continue
		}
		version := cmp.Or(p.Version, "unknown")
		if !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
		for _, c := range p.Consumers {
			if counts[c.Name] == nil {
				counts[c.Name] = map[string]int{}
			}
			counts[c.Name][version]++
		}
	}
	slices.Sort(versions)
	for consumer, of := range counts {
		row := matrixRow{Consumer: consumer}
		for _, version := range versions {
			row.Processes = append(row.Processes, of[version])
		}
		rows = append(rows, row)
	}
	slices.SortFunc(rows, func(a, b matrixRow) int { return cmp.Compare(a.Consumer, b.Consumer) })
	return versions, rows
}
