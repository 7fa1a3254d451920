package overview

import (
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
		i := slices.IndexFunc(all, func(runs []admin.Process) bool { return runs[0].Host == p.Host && runs[0].PID == p.PID })
		if i < 0 {
			all = append(all, []admin.Process{p})
		} else {
			all[i] = append(all[i], p)
		}
	}
	return all
}

// HasRunner reports whether a live process runs an ops.Runner.
func HasRunner(processes []admin.Process) bool {
	return slices.ContainsFunc(processes, func(p admin.Process) bool { return p.Kind == RunnerKind && p.Status == admin.ProcessAlive })
}
