package console

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// schedulesPage is schedules that match a filter.
type schedulesPage struct {
	Filter schedule.Filter
	Found  []scheduleRow
	Paging paging
}

func (v *request) schedules() (page, error) {
	a := v.asks()
	data := schedulesPage{Filter: schedule.Filter{Name: a.text("name"), Tag: a.text("tag")}}
	at := a.page()
	if err := a.err(); err != nil {
		return page{}, err
	}
	found, next, err := v.session.Schedules().List(v.ctx(), data.Filter, at)
	data.Paging = v.paging(next)
	for _, s := range found {
		data.Found = append(data.Found, scheduleRow{s})
	}
	return page{Title: "Schedules", Tab: "schedules", Data: data}, err
}

// scheduleRow is a schedule as pages show it.
type scheduleRow struct{ ops.Schedule }

// Failed reports whether it could not fire when it last was to: who may not read its error sees that, too.
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

// schedulePage is one schedule.
type schedulePage struct {
	scheduleRow
	Fires   []fire
	Content string
	Binary  bool
}

// fire is a time at which a schedule is to fire.
type fire struct {
	At    time.Time // in the schedule's zone
	Shift string    // of the clock since the one before, such as "+01:00 → +02:00"
}

func (v *request) schedule() (page, error) {
	a := v.asks()
	id := a.needID("id")
	if err := a.err(); err != nil {
		return page{}, err
	}
	found, err := v.session.Schedules().Get(v.ctx(), id)
	if err != nil {
		return page{}, err
	}
	data := schedulePage{scheduleRow: scheduleRow{found}, Fires: firesOf(found.Next)}
	data.Content, data.Binary = readable(found.Payload)
	return page{Title: "Schedule " + scheduleName(found), Tab: "schedules", Data: data}, nil
}

// scheduleName is how people call a schedule.
func scheduleName(s ops.Schedule) string {
	if s.Name != "" {
		return s.Name
	}
	return linkTo("", "id", s.ID).query.Get("id")
}

// firesOf marks where the clock of the zone changes between fires.
func firesOf(next []time.Time) (fires []fire) {
	for i, at := range next {
		f := fire{At: at}
		if i > 0 {
			_, before := next[i-1].Zone()
			if _, now := at.Zone(); now != before {
				f.Shift = next[i-1].Format("-07:00") + " → " + at.Format("-07:00")
			}
		}
		fires = append(fires, f)
	}
	return fires
}
