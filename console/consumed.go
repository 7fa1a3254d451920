package console

import "github.com/asyncmonolith/asyncmonolith-go/admin"

// consumedPage is consumed messages that are kept and match a filter.
type consumedPage struct {
	Filter  consumedFilter
	Found   []admin.ConsumedMessage
	Paging  paging
	Suggest suggestions
	at      admin.Page
}

func (p *consumedPage) read(q *params) { p.Filter, p.at = q.consumed(), q.page() }

func (p *consumedPage) load(r *request) error {
	found, next, err := r.session.Consumed().List(r.Context(), p.Filter.ConsumedFilter, p.at)
	if err != nil {
		return err
	}
	p.Found, p.Paging = found, r.here().paging(next)
	for _, m := range found {
		p.Suggest.addKey(m.OrderingKey)
		add(&p.Suggest.Versions, m.Version)
	}
	return p.Suggest.load(r)
}

func (*consumedPage) layout() layout { return layout{title: "Consumed messages", tab: "messages"} }
