package names

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	since = 7 * 24 * time.Hour // age limit of the process reports whose names are used
	most  = 1000               // reports that are read
)

// Names holds the names under which messages of consumers may be stored. It is immutable.
type Names struct {
	known [][]string // names of each consumer, the present one first; the most reliable source first
}

// Read returns the names of consumers in the registry and in reports of processes of the last 7
// days. Another program may have renamed a consumer that this program knows by a former name, or
// does not have.
func Read(ctx context.Context, db bun.IDB, st *store.Store, registry *bus.Registry) (Names, error) {
	rows, err := st.Reports.Processes(ctx, db, since, most)
	if err != nil {
		return Names{}, err
	}
	told := toldBy(rows)
	var n Names
	seen := make(map[string]bool)
	add := func(names []string) {
		if key := strings.Join(names, "\x00"); !seen[key] {
			seen[key] = true
			n.known = append(n.known, names)
		}
	}
	for _, consumer := range registry.Consumers() {
		add(access.Names(consumer))
	}
	// Live processes first; among those, consumers with the most names, since they include the
	// renames.
	for _, alive := range []bool{true, false} {
		slices.SortStableFunc(told[alive], func(a, b []string) int { return len(b) - len(a) })
		for _, names := range told[alive] {
			add(names)
		}
	}
	return n, nil
}

// Registered returns the names of consumers in the registry. It reads nothing.
func Registered(_ context.Context, _ bun.IDB, _ *store.Store, registry *bus.Registry) (Names, error) {
	return Names{store.Each(registry.Consumers(), access.Names)}, nil
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
		var s heartbeat.State
		_ = json.Unmarshal(row.State, &s) // another version may have left out fields
		alive := row.StoppedAt.IsZero() && !heartbeat.Lost(row, s)
		of := manifest{alive, string(row.Manifest)}
		if read[of] {
			continue
		}
		read[of] = true
		var m heartbeat.Manifest
		_ = json.Unmarshal(row.Manifest, &m) // as above
		for _, c := range m.Consumers {
			told[alive] = append(told[alive], append([]string{c.Name}, c.Former...))
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
