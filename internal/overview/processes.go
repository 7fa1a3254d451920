package overview

import (
	"cmp"
	"path"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

const (
	// LostWithin is how long a lost process is shown.
	LostWithin = 24 * time.Hour
	// RunnerKind is the process kind of an ops.Runner.
	RunnerKind = "operations"
)

// Programs groups processes of a status by program. One program may run a processor, a scheduler,
// projections and relays.
func Programs(processes []admin.Process, status admin.ProcessStatus) (all [][]admin.Process) {
	for _, p := range processes {
		if p.Status != status {
			continue
		}
		i := slices.IndexFunc(all, func(runs []admin.Process) bool { return same(runs[0], p) })
		if i < 0 {
			all = append(all, []admin.Process{p})
		} else {
			all[i] = append(all[i], p)
		}
	}
	return all
}

// same reports whether two processes run in one process of the operating system. Programs of older
// versions report no instance.
func same(a, b admin.Process) bool {
	return a.Instance == b.Instance && a.Host == b.Host && a.PID == b.PID
}

// Program is what runs in one process of the operating system: a processor, a scheduler, and so on.
type Program struct {
	Host, Program, Version string
	PID                    int
	Status                 admin.ProcessStatus
	Started, Seen          time.Time
	Parts                  []admin.Process // by kind
}

// All groups processes by program: lost ones first, then live ones, then those that have stopped,
// each by host and PID. Parts with another status are a program of their own.
func All(processes []admin.Process) (all []Program) {
	rank := map[admin.ProcessStatus]int{admin.ProcessLost: 0, admin.ProcessAlive: 1, admin.ProcessStopped: 2}
	for _, status := range []admin.ProcessStatus{admin.ProcessAlive, admin.ProcessLost, admin.ProcessStopped} {
		for _, parts := range Programs(processes, status) {
			p := parts[0]
			made := Program{Host: p.Host, Program: p.Program, Version: p.Version, PID: p.PID, Status: status, Started: p.StartedAt, Parts: parts}
			for _, part := range parts {
				if part.StartedAt.Before(made.Started) {
					made.Started = part.StartedAt
				}
				if part.SeenAt.After(made.Seen) {
					made.Seen = part.SeenAt
				}
			}
			slices.SortStableFunc(made.Parts, func(a, b admin.Process) int { return cmp.Compare(a.Kind, b.Kind) })
			all = append(all, made)
		}
	}
	slices.SortStableFunc(all, func(a, b Program) int {
		return cmp.Or(cmp.Compare(rank[a.Status], rank[b.Status]), cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID),
			b.Started.Compare(a.Started))
	})
	return all
}

// HasRunner reports whether a live program runs an ops.Runner for an operation and, unless its name is
// empty, a projection. The operation is 0 for a new one.
func HasRunner(processes []admin.Process, operation int64, projection string) bool {
	runs := func(p admin.Process) bool {
		return p.Kind == RunnerKind && (p.Operation == 0 || p.Operation == operation)
	}
	applies := func(p admin.Process) bool {
		return slices.ContainsFunc(p.Projections, func(name string) bool { return path.Dir(name) == projection })
	}
	return slices.ContainsFunc(Programs(processes, admin.ProcessAlive), func(parts []admin.Process) bool {
		return slices.ContainsFunc(parts, runs) && (projection == "" || slices.ContainsFunc(parts, applies))
	})
}
