package console

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// overviewPage is the first page: all consumers, and what needs attention.
type overviewPage struct {
	operator.Overview
	Consumers []consumerRow
	Alive     alive
	Fails     []failure
	Troubles  []trouble
	Open      []operation
}

func (*overviewPage) read(*params) {}

func (p *overviewPage) load(r *request) (err error) {
	if p.Overview, err = r.overview(); err != nil {
		return err
	}
	p.Troubles, p.Alive = troubles(p.Attention), aliveOf(p.Processes)
	minutes := map[string][]operator.MinuteStats{}
	for _, m := range p.Minutes {
		minutes[m.Consumer] = append(minutes[m.Consumer], m)
	}
	for _, q := range p.Queues {
		unhandled := slices.ContainsFunc(p.Unhandled, func(u admin.Unhandled) bool { return u.Consumer == q.Consumer })
		p.Consumers = append(p.Consumers, consumerRow{q, recently(p.At, minutes[q.Consumer]), unhandled})
	}
	for _, f := range p.Failures {
		p.Fails = append(p.Fails, failureOf(f, p.Processes))
	}
	for _, o := range p.Operations {
		p.Open = append(p.Open, operation{o})
	}
	return nil
}

func (*overviewPage) layout() layout { return layout{title: "Overview"} }

// Told reports whether any run was reported: in the first seconds of a system, and after an idle hour, none was.
func (p *overviewPage) Told() bool { return len(p.Minutes) > 0 || len(p.Failures) > 0 }

const troublesShown = 6

// First are the worst troubles.
func (p *overviewPage) First() []trouble { return p.Troubles[:min(len(p.Troubles), troublesShown)] }

// Rest are the others.
func (p *overviewPage) Rest() []trouble { return p.Troubles[min(len(p.Troubles), troublesShown):] }

// consumerRow is a consumer among others.
type consumerRow struct {
	admin.Queue
	recent
	Unhandled bool // no live process takes some of its messages
}

// recent is what a consumer did in the last hour.
type recent struct {
	PerMinute float64 // runs, in the last five whole minutes
	P50, P99  time.Duration
	Spark     chart
}

const rateMinutes = 5

// recently sums up the minutes of a consumer.
func recently(now time.Time, minutes []operator.MinuteStats) (r recent) {
	var runs operator.Histogram
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
func ran(m operator.MinuteStats) int64 {
	return m.Done + m.Retried + m.Poisoned + m.Snoozed + m.Discarded
}
