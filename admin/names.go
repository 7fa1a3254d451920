package admin

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// namesSince is how long ago a process may have told of itself whose names count.
const namesSince = 7 * 24 * time.Hour

// Names are the names under which messages of consumers may be stored. It is immutable.
type Names struct {
	known [][]string // the names of each, its present one first; whose word counts most first
}

// Names asks the registry, and the processes of the last 7 days, by which names consumers go: another program may have
// renamed one that this program knows under its former name, or not at all. See bus.Aliases.
func (a *Client) Names(ctx context.Context, db bun.IDB) (Names, error) {
	st, db, err := a.stores.Of(db, errNotMade)
	if err != nil {
		return Names{}, dberr.Wrap(err, "admin: names")
	}
	rows, err := st.Processes(ctx, db, namesSince, mostListed)
	if err != nil {
		return Names{}, dberr.Wrap(err, "admin: names")
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
	for _, c := range a.registry.Consumers() {
		add(c.Names())
	}
	// Who is alive counts first, and of those who has renamed it, and takes it under both names.
	for _, alive := range []bool{true, false} {
		slices.SortStableFunc(told[alive], func(a, b []string) int { return len(b) - len(a) })
		for _, names := range told[alive] {
			add(names)
		}
	}
	return n, nil
}

// toldBy is what processes report of the names of consumers, by whether they are alive. All of a
// release report the same, which is read once: each step of a requeue asks for it.
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

// Of returns all names of the consumers that have the given one, at least that. The first is the present one: in the
// registry, or else in a process that is alive, or else in one that was.
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

// Several lists the names of each consumer that has more than one.
func (n Names) Several() [][]string {
	return slices.DeleteFunc(slices.Clone(n.known), func(names []string) bool { return len(names) == 1 })
}
