package console

import "github.com/asyncmonolith/asyncmonolith-go/admin"

// messagesPage is pending messages that match a filter.
type messagesPage struct {
	Filter  pendingFilter
	Found   []admin.Message
	Paging  paging
	Suggest suggestions
	at      admin.Page
}

func (p *messagesPage) read(q *params) { p.Filter, p.at = q.pending(), q.page() }

func (p *messagesPage) load(r *request) error {
	found, next, err := r.session.Messages().List(r.Context(), p.Filter.Filter, p.at)
	if err != nil {
		return err
	}
	p.Found, p.Paging = found, r.here().paging(next)
	for _, m := range found {
		p.Suggest.addKey(m.OrderingKey)
	}
	return p.Suggest.load(r)
}

func (*messagesPage) layout() layout { return layout{title: "Messages", tab: "messages"} }
