package admin

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// namesSince is the age limit of the process reports whose names are used.
const namesSince = 7 * 24 * time.Hour

// Names holds the names under which messages of consumers may be stored. It is immutable.
type Names struct {
	known [][]string // names of each consumer, the present one first; the most reliable source first
}

// toldBy returns the names of consumers in process reports, by whether the process is alive. All
// processes of a release report the same manifest, so each one is parsed once: every requeue step
// calls this.
func toldBy(rows []store.Process) map[bool][][]string {
	type manifest struct {
		alive bool
		text  string
	}
	read, told := make(map[manifest]bool), make(map[bool][][]string)
	for _, row := range rows {
		alive := newProcess(store.Process{State: row.State, SeenAt: row.SeenAt, StoppedAt: row.StoppedAt, Now: row.Now}).Status == ProcessAlive
		if of := (manifest{alive, string(row.Manifest)}); !read[of] {
			read[of] = true
			for _, c := range newProcess(row).Consumers {
				told[alive] = append(told[alive], append([]string{c.Name}, c.Former...))
			}
		}
	}
	return told
}

// Of returns all names of the consumers that have the given name, or only that name if none has.
// The first is the present name: from the registry, else from a live process, else from a former
// one.
func (n Names) Of(consumer string) (all []string) {
	for _, names := range n.known {
		if !slices.Contains(names, consumer) {
			continue
		}
		for _, name := range names {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	if len(all) == 0 {
		return []string{consumer}
	}
	return all
}

// Several returns the names of each consumer that has more than one.
func (n Names) Several() [][]string {
	return slices.DeleteFunc(slices.Clone(n.known), func(names []string) bool { return len(names) == 1 })
}
