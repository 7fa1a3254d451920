package console

import (
	"strconv"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// schedulesPage is schedules that match a filter.
type schedulesPage struct {
	Filter schedule.Filter
	Found  []scheduleRow
	Paging paging
	at     admin.Page
}

func (p *schedulesPage) read(q *params) {
	p.Filter, p.at = schedule.Filter{Name: q.text("name"), Tag: q.text("tag")}, q.page()
}

func (p *schedulesPage) load(r *request) error {
	found, next, err := r.session.Schedules().List(r.Context(), p.Filter, p.at)
	p.Paging = r.here().paging(next)
	for _, s := range found {
		p.Found = append(p.Found, scheduleRow{s})
	}
	return err
}

func (*schedulesPage) layout() layout { return layout{title: "Schedules", tab: "schedules"} }

// scheduleRow is a schedule as pages show it.
type scheduleRow struct{ operator.Schedule }

// Failed reports whether it could not fire when it last was to. Without its error, which may be hidden, a fire that
// made no message says so.
func (s scheduleRow) Failed() bool {
	if s.LastError != "" {
		return true
	}
	n := len(s.Recent)
	return n > 0 && s.Recent[n-1].Messages == 0
}

// Overdue reports whether it was to fire, and has not.
func (s scheduleRow) Overdue() bool {
	return !s.Paused && time.Since(s.NextFire) > time.Minute
}

// name is its name, or else its id.
func (s scheduleRow) name() string {
	if s.Name != "" {
		return s.Name
	}
	return strconv.FormatInt(s.ID, 10)
}
