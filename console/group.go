package console

import (
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// groupPage is poisoned messages that match a filter, such as those of a group.
type groupPage struct {
	Filter   poisonedFilter
	Count    int
	Fails    *failure // what they have in common, if they are of a group
	Versions []string // of the live processes that take them
	Live     bool     // there is such a process
	Found    []poison.Message
	Paging   paging
	Paused   []string // its consumer, if it is
	Suggest  suggestions
	at       admin.Page
}

const failuresRead = 200

func (p *groupPage) read(q *params) { p.Filter, p.at = q.poisoned(), q.page() }

func (p *groupPage) load(r *request) error {
	found, next, err := r.session.Poisoned().List(r.Context(), p.Filter.Filter, p.at)
	if err != nil {
		return err
	}
	p.Found, p.Paging = found, r.here().paging(next)
	for _, m := range found {
		p.Suggest.addKey(m.OrderingKey)
	}
	if err := p.Suggest.load(r); err != nil {
		return err
	}
	p.Count, err = r.session.Poisoned().Count(r.Context(), p.Filter.Filter)
	if err != nil || !p.Filter.Of() { // the rest is of a group
		return err
	}
	fleet, err := r.session.Processes(r.Context(), fleetTime)
	if err != nil {
		return err
	}
	p.setVersions(fleet)
	if err := p.loadFails(r, fleet); err != nil {
		return err
	}
	all, err := r.queues()
	p.Paused = all.paused(p.Filter.Consumer)
	return err
}

func (p *groupPage) layout() layout {
	l := layout{title: "Poisoned messages", tab: "poisoned"}
	if p.Filter.Of() {
		l.title += " of " + p.Filter.Consumer
	}
	return l
}

func (p *groupPage) setVersions(fleet []admin.Process) {
	for _, t := range takersOf(fleet, p.Filter.Consumer) {
		if t.Status != admin.ProcessAlive {
			continue
		}
		p.Live = true
		if t.Version != "" && !slices.Contains(p.Versions, t.Version) {
			p.Versions = append(p.Versions, t.Version)
		}
	}
}

// loadFails reads what the messages of a group failed of. Without poisoned messages it is among the failures only.
func (p *groupPage) loadFails(r *request, fleet []admin.Process) error {
	groups, _, err := r.session.Poisoned().Groups(r.Context(), p.Filter.Consumer)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(groups, func(g poison.Group) bool { return g.Fingerprint == p.Filter.Fingerprint }); i >= 0 {
		fails := failureOfGroup(groups[i], fleet)
		p.Fails = &fails
		return nil
	}
	failures, err := r.session.Consumers().Failures(r.Context(), p.Filter.Consumer, failuresRead)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(failures, func(f admin.FailureGroup) bool { return f.Fingerprint == p.Filter.Fingerprint }); i >= 0 {
		fails := failureOf(failures[i], fleet)
		p.Fails = &fails
	}
	return nil
}
