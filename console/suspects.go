package console

import (
	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// suspectsPage is messages that processes were lost with, and those processes.
type suspectsPage struct {
	Found   []suspect
	Paging  paging
	Crashes []crash // of the last days, also of messages that are gone
	at      admin.Page
}

// suspect is a pending message whose last process was lost.
type suspect struct {
	admin.Message
	Crashes []crash
}

// crash is a process that was lost.
type crash struct {
	operator.Crash
	Process *admin.Process // nil: it is not known any more
}

const crashesShown = 200

func (p *suspectsPage) read(q *params) { p.at = q.page() }

func (p *suspectsPage) load(r *request) error {
	found, next, err := r.session.Messages().List(r.Context(), admin.Filter{Crashed: true}, p.at)
	if err != nil {
		return err
	}
	p.Paging = r.here().paging(next)
	fleet, err := r.session.Processes(r.Context(), seenTime)
	if err != nil {
		return err
	}
	crashes, err := r.session.Messages().Crashes(r.Context(), 0, crashesShown)
	if err != nil {
		return err
	}
	of := map[int64][]crash{}
	for _, c := range crashes {
		seen := crash{c, processOf(fleet, c.Owner)}
		p.Crashes = append(p.Crashes, seen)
		of[c.ID] = append(of[c.ID], seen)
	}
	for _, m := range found {
		p.Found = append(p.Found, suspect{m, of[m.ID]})
	}
	return nil
}

func (*suspectsPage) layout() layout { return layout{title: "Crash suspects", tab: "processes"} }
