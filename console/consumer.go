package console

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// consumerPage is one consumer: what it does, and why it does not.
type consumerPage struct {
	Name     string
	Queue    admin.Queue
	At       time.Time
	Span     span
	Spans    []span
	Runs     chart
	Releases []mark // versions that are new in the charts
	Times    lines
	Slots    []slot
	Groups   []failure // of poisoned messages
	More     bool      // groups
	Oldest   []admin.Message
	Why      *admin.Explanation
	Takers   []taker
	Failures []failure // without poisoned messages
	Blocked  []operator.BlockedKey
	Schemas  []operator.PayloadSchema
}

const (
	oldestShown   = 10
	failuresShown = 20
)

func (p *consumerPage) read(q *params) {
	p.Name = q.text("name")
	if p.Name == "" {
		q.fail("name is missing: a consumer name is required.")
	}
	p.Spans = spans()
	p.Span = p.Spans[0]
	if name := q.text("span"); name != "" {
		i := slices.IndexFunc(p.Spans, func(s span) bool { return s.Name == name })
		if i < 0 {
			q.fail("span must be 48h, 6h or 1h.")
			return
		}
		p.Span = p.Spans[i]
	}
}

func (p *consumerPage) load(r *request) error {
	o, err := r.overview()
	if err != nil {
		return err
	}
	p.At, p.Queue = o.At, queues(o.Queues).of(p.Name)
	fleet, err := r.session.Processes(r.Context(), fleetTime)
	if err != nil {
		return err
	}
	p.Takers = takersOf(fleet, p.Name)
	if err := p.loadCharts(r); err != nil {
		return err
	}
	if err := p.loadFailures(r, fleet); err != nil {
		return err
	}
	if err := p.loadOldest(r); err != nil {
		return err
	}
	if p.Schemas, err = r.session.Consumers().Schemas(r.Context(), p.Name); err != nil {
		return err
	}
	return p.loadBlocked(r)
}

func (p *consumerPage) layout() layout { return layout{title: p.Name} }

func (p *consumerPage) loadCharts(r *request) error {
	minutes, err := r.session.Consumers().Minutes(r.Context(), p.Span.time(), p.Name)
	if err != nil {
		return err
	}
	first := p.Span.first(p.At)
	p.Slots = slotsOf(first, p.Span, minutes)
	p.Runs = columns(first, p.Span, linesHeight, minutes)
	p.Times, p.Releases = linesOf(p.Slots, p.Span.width), releases(first, p.Span, p.Takers)
	return nil
}

func (p *consumerPage) loadFailures(r *request, fleet []admin.Process) error {
	groups, more, err := r.session.Poisoned().Groups(r.Context(), p.Name)
	if err != nil {
		return err
	}
	p.More = more
	known := map[string]bool{}
	for _, g := range groups {
		known[g.Fingerprint] = true
		p.Groups = append(p.Groups, failureOfGroup(g, fleet))
	}
	failures, err := r.session.Consumers().Failures(r.Context(), p.Name, failuresShown)
	for _, f := range failures {
		if !known[f.Fingerprint] {
			p.Failures = append(p.Failures, failureOf(f, fleet))
		}
	}
	return err
}

func (p *consumerPage) loadOldest(r *request) (err error) {
	p.Oldest, _, err = r.session.Messages().List(r.Context(), admin.Filter{Consumer: p.Name}, admin.Page{Size: oldestShown})
	if err != nil || len(p.Oldest) == 0 {
		return err
	}
	waits := slices.DeleteFunc(slices.Clone(p.Oldest), func(m admin.Message) bool { return m.State == admin.Leased })
	if len(waits) == 0 {
		waits = p.Oldest
	}
	oldest := slices.MinFunc(waits, func(a, b admin.Message) int { return a.AvailableAt.Compare(b.AvailableAt) })
	p.Why, err = explain(r, oldest.ID)
	return err
}

func (p *consumerPage) loadBlocked(r *request) (err error) {
	p.Blocked, err = r.session.Consumers().BlockedKeys(r.Context(), p.Name, pageSize)
	return err
}
