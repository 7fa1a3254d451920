package console

import (
	"cmp"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

// processesPage is which processes work or were lost, what they hold, and which versions take what.
type processesPage struct {
	Alive      alive
	Found      []admin.Process
	Claims     []claim // the oldest
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

const claimsShown = 200

func (v *request) processes() (page, error) {
	fleet, err := v.session.Processes(v.ctx(), fleetTime)
	if err != nil {
		return page{}, err
	}
	claims, err := v.session.Consumers().Claims(v.ctx())
	if err != nil {
		return page{}, err
	}
	data := processesPage{Alive: aliveOf(fleet), Found: fleet, MoreClaims: max(0, len(claims)-claimsShown)}
	for _, c := range claims[:min(len(claims), claimsShown)] {
		data.Claims = append(data.Claims, claim{c, processOf(fleet, c.Owner)})
	}
	data.Versions, data.Matrix = matrix(fleet)
	rank := map[admin.ProcessStatus]int{admin.ProcessLost: 0, admin.ProcessAlive: 1, admin.ProcessStopped: 2}
	slices.SortStableFunc(data.Found, func(a, b admin.Process) int {
		return cmp.Or(cmp.Compare(rank[a.Status], rank[b.Status]), cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Kind, b.Kind))
	})
	return page{Title: "Processes", Tab: "processes", Data: data}, nil
}

// alive is how many programs live, and how many of their runs tell of themselves: a program has several, such
// as a processor and a scheduler.
type alive struct{ Programs, Runs int }

func aliveOf(fleet []admin.Process) (a alive) {
	type program struct {
		host string
		pid  int
	}
	known := map[program]bool{}
	for _, p := range fleet {
		if p.Status == admin.ProcessAlive {
			known[program{p.Host, p.PID}] = true
			a.Runs++
		}
	}
	a.Programs = len(known)
	return a
}

// String is what pages say.
func (a alive) String() string {
	return plural(a.Programs, "program") + " alive (" + plural(a.Runs, "run") + ")"
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

// claimPage is what is in one claim.
type claimPage struct {
	ID    int64
	Found []admin.Message
}

func (v *request) claim() (page, error) {
	a := v.asks()
	data := claimPage{ID: a.needID("id")}
	if err := a.err(); err != nil {
		return page{}, err
	}
	var err error
	data.Found, err = v.session.Messages().ListClaimed(v.ctx(), data.ID)
	return page{Title: "Claim " + linkTo("", "id", data.ID).query.Get("id"), Tab: "processes", Data: data}, err
}
