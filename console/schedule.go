package console

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// schedulePage is one schedule.
type schedulePage struct {
	scheduleRow
	Fires   []fire
	Content string // the payload as a text
	Binary  bool
	Tree    *jsonNode // nil: it is shown as a text
}

// fire is a time at which a schedule is to fire.
type fire struct {
	At    time.Time // in the schedule's zone
	Shift string    // of the clock since the one before, such as "+01:00 → +02:00"
}

func (p *schedulePage) read(q *params) { p.ID = q.needID("id") }

func (p *schedulePage) load(r *request) (err error) {
	if p.Schedule, err = r.session.Schedules().Get(r.Context(), p.ID); err != nil {
		return err
	}
	p.Fires = firesOf(p.Next)
	p.Content, p.Binary = readable(p.Payload)
	p.Tree = jsonTree(p.Payload)
	return nil
}

func (p *schedulePage) layout() layout {
	return layout{title: "Schedule " + p.name(), tab: "schedules"}
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

// scheduleTimes are an expression and a zone as they were typed, and when a schedule fires by them.
type scheduleTimes struct {
	Expression, Zone string
	Fires            []fire
	Wrong            string // what is wrong with them
}

func timesOf(expression, zone string) *scheduleTimes {
	next, wrong := operator.NextFires(expression, zone)
	return &scheduleTimes{expression, zone, firesOf(next), wrong}
}
