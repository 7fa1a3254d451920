package model

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// group draws consumers that are claimed for together.
func (w *world) group() []string { return draw(w, "consumers", w.groups...) }

// request draws what a processor may ask for, of consumers that are claimed for together.
func (w *world) request(of []string) Request {
	r := Request{
		Owner: draw(w, "owner", owners()...), Consumers: of, Limit: rapid.IntRange(1, 4).Draw(w.T, "limit"),
		Select: draw(w, "selection", w.selections(of)...),
	}
	if rulesOf(of[0]).Keyed {
		r.Lanes = w.guess()
	}
	switch r.Select {
	case store.Killers:
		r.Limit, r.Solo = 1, !w.chance("in company", 4)
	case store.Suspects:
		r.Limit, r.Solo = 8, w.chance("solo", 3)
	default:
		r.Solo = w.chance("solo", 6)
		for _, consumer := range r.Consumers {
			place := w.hints[consumer]
			if w.chance("from the start", 2) {
				place = Place{}
			}
			r.After = append(r.After, place)
		}
	}
	return r
}

// selections are those that have something to find, and clean.
func (w *world) selections(of []string) []store.Selection {
	some := []store.Selection{store.Clean}
	for key, row := range w.view.Rows {
		if slices.Contains(of, key.Consumer) {
			some = append(some, store.Selection(min(row.Crashes, 2)))
		}
	}
	slices.Sort(some)
	return some
}

func (w *world) claimOf(consumers []string) {
	r := w.request(consumers)
	if r.gated() && w.shut[consumers[0]] {
		w.tally["waited at a gate"]++
		return
	}
	before := w.view
	w.remember(r, before, w.now, same(w, Step{Kind: "claim", Owner: r.Owner}, func(s System) []Key { return s.Claim(r) }))
}

// remember notes what an owner was given, of rates as of an instant.
func (w *world) remember(r Request, before View, at time.Duration, keys []Key) {
	w.tally.asked(r, before, keys)
	if len(keys) == 0 {
		return
	}
	w.started(r, keys, before.Rows, at)
	w.claims++
	w.tally["claims"]++
	switch r.Select {
	case store.Suspects:
		w.tally["claims of suspects"]++
	case store.Killers:
		w.tally["claims of killers"]++
	}
	if slices.ContainsFunc(r.After, func(place Place) bool { return place != Place{} }) {
		w.tally["hints used"]++
	}
	rows := make(map[Key]Row)
	for _, key := range keys {
		rows[key] = before.Rows[key]
		w.hints[key.Consumer] = Place{Due: rows[key].Due, Key: key}
	}
	w.taken = append(w.taken, taken{owner: r.Owner, claim: w.claims, keys: keys, rows: rows})
}
