package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// overview is the first page: all consumers, and what needs attention.
type overview struct {
	ops.Overview
	Consumers []consumerRow
	Alive     alive
	Fails     []failing
	Troubles  []trouble
	Open      []operation
}

// Told reports whether anything is known of runs: in the first seconds of a system, and after an idle hour, nothing is.
func (o overview) Told() bool { return len(o.Minutes) > 0 || len(o.Failures) > 0 }

// glance is an overview, an old one rather than none at once.
func (v *request) glance() (ops.Overview, error) {
	o, due, err := v.session.CachedOverview(v.ctx())
	if due {
		v.later = v.renew
	}
	for _, u := range o.Unseen { // the page says that it is so, and not why
		v.warn("a part of the overview could not be looked at", "parts", strings.Join(u.Parts, ", "), "error", u.Why)
	}
	return o, err
}

// renew has the next one who looks see a newer overview. Who has asked has an answer already, and does not
// wait for that, nor take it along.
func (v *request) renew() {
	if _, err := v.session.Overview(context.WithoutCancel(v.ctx())); err != nil {
		v.warn("the overview could not be made anew", "error", err.Error())
	}
}

const needsShown = 6

// First are the worst findings.
func (o overview) First() []trouble { return o.Troubles[:min(len(o.Troubles), needsShown)] }

// Rest are the others.
func (o overview) Rest() []trouble { return o.Troubles[min(len(o.Troubles), needsShown):] }

// trouble is one thing that needs attention, or several of one kind.
type trouble []finding

// troubles puts together what is of one kind.
func troubles(found []ops.Finding) (all []trouble) {
	of := map[[2]string]int{}
	for _, f := range found {
		kind := [2]string{f.Check, string(f.Severity)}
		at, known := of[kind]
		if !known {
			at = len(all)
			of[kind], all = at, append(all, nil)
		}
		all[at] = append(all[at], finding{f})
	}
	return all
}

// Lead is the first of them.
func (t trouble) Lead() finding { return t[0] }

// Alone reports whether there is no other.
func (t trouble) Alone() bool { return len(t) == 1 }

// consumerRow is a consumer among others.
type consumerRow struct {
	admin.Queue
	recent
	Stranger bool // some of its messages no live process takes
}

// recent is what a consumer has done in the last hour.
type recent struct {
	PerMinute float64 // runs, in the last five whole minutes
	P50, P99  time.Duration
	Spark     chart
}

func (v *request) overview() (page, error) {
	o, err := v.glance()
	if err != nil {
		return page{}, err
	}
	data := overview{Overview: o, Troubles: troubles(o.Attention)}
	minutes := map[string][]admin.MinuteStats{}
	for _, m := range o.Minutes {
		minutes[m.Consumer] = append(minutes[m.Consumer], m)
	}
	for _, q := range o.Queues {
		data.Consumers = append(data.Consumers, consumerRow{Queue: q, recent: recently(o.At, minutes[q.Consumer]), Stranger: slices.ContainsFunc(o.Unhandled, func(u admin.Unhandled) bool { return u.Consumer == q.Consumer })})
	}
	data.Alive = aliveOf(o.Processes)
	for _, f := range o.Failures {
		data.Fails = append(data.Fails, failingNow(f, o.Processes))
	}
	for _, o := range o.Operations {
		data.Open = append(data.Open, operation{o})
	}
	return page{Title: "Overview", Tab: "", Data: data}, nil
}

// finding is something that needs attention, with the page where it is cured.
type finding struct{ ops.Finding }

// Page is where to look.
func (f finding) Page() string {
	switch f.Check {
	case "poisoned":
		return linkTo("poisoned", "consumer", f.Subject).String()
	case "blocked_keys", "consumers", "pauses":
		if f.Subject == "" { // of none, such as that it could not be looked at
			return "doctor"
		}
		return linkTo("consumer", "name", f.Subject).String()
	case "schedules":
		return linkTo("schedules", "name", f.Subject).String()
	case "processes", "projections", "operations":
		return f.Check
	default:
		return "doctor"
	}
}

// CurePage is the page of what its cure has a command for, or empty.
func (f finding) CurePage() string {
	if strings.Contains(f.Remedy, "messages list --crashed") {
		return "suspects"
	}
	return ""
}

const rateMinutes = 5

// recently sums up the minutes of a consumer.
func recently(now time.Time, minutes []admin.MinuteStats) (r recent) {
	var runs admin.Histogram
	for _, m := range minutes {
		for i, n := range m.Run {
			runs[i] += n
		}
		if age := now.Sub(m.At); age > time.Minute && age <= (rateMinutes+1)*time.Minute {
			r.PerMinute += float64(ran(m)) / rateMinutes
		}
	}
	r.P50, r.P99 = runs.Quantile(0.5), runs.Quantile(0.99)
	r.Spark = spark(now, minutes)
	return r
}

// ran is how many runs ended in a minute.
func ran(m admin.MinuteStats) int64 {
	return m.Done + m.Retried + m.Poisoned + m.Snoozed + m.Discarded
}
