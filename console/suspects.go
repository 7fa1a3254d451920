package console

import "github.com/asyncmonolith/asyncmonolith-go/admin"

// suspectsPage is messages that processes were lost with, and those processes.
type suspectsPage struct {
	Found   []suspect
	Paging  paging
	Crashes []crash // of the last days, also of messages that are gone
}

// suspect is a pending message whose last process was lost.
type suspect struct {
	admin.Message
	Crashes []crash
}

// crash is a process that was lost.
type crash struct {
	admin.Crash
	Process *admin.Process // nil: it is not known any more
}

const crashesShown = 200

func (v *request) suspects() (page, error) {
	a := v.asks()
	at := a.page()
	if err := a.err(); err != nil {
		return page{}, err
	}
	found, next, err := v.session.Messages().List(v.ctx(), admin.Filter{Crashed: true}, at)
	if err != nil {
		return page{}, err
	}
	fleet, err := v.session.Processes(v.ctx(), seenTime)
	if err != nil {
		return page{}, err
	}
	known, err := v.session.Messages().Crashes(v.ctx(), 0, crashesShown)
	if err != nil {
		return page{}, err
	}
	data := suspectsPage{Paging: v.paging(next)}
	of := map[int64][]crash{}
	for _, c := range known {
		seen := crash{c, processOf(fleet, c.Owner)}
		data.Crashes = append(data.Crashes, seen)
		of[c.ID] = append(of[c.ID], seen)
	}
	for _, m := range found {
		data.Found = append(data.Found, suspect{m, of[m.ID]})
	}
	return page{Title: "Crash suspects", Tab: "suspects", Data: data}, nil
}
