package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// overviewPage is the first page: all consumers, and what needs attention.
type overviewPage struct {
	operator.Overview
	Name      string // what the names of the consumers shown contain
	All       int    // consumers, shown or not
	Consumers []consumerRow
	Alive     int // programs
	Fails     []failure
	Troubles  []finding
	Open      []operation
}

func (p *overviewPage) read(q *params) { p.Name = q.text("name") }

func (p *overviewPage) load(r *request) (err error) {
	if p.Overview, err = r.overview(); err != nil {
		return err
	}
	p.Alive, _ = p.Programs()
	p.All = len(p.Queues)
	for _, f := range p.Attention {
		p.Troubles = append(p.Troubles, finding{f})
	}
	minutes := map[string][]operator.MinuteStats{}
	for _, m := range p.Minutes {
		minutes[m.Consumer] = append(minutes[m.Consumer], m)
	}
	for _, q := range p.Queues {
		if strings.Contains(strings.ToLower(q.Consumer), strings.ToLower(p.Name)) {
			p.Consumers = append(p.Consumers, consumerRow{q, recently(p.At, minutes[q.Consumer])})
		}
	}
	slices.SortStableFunc(p.Consumers, func(a, b consumerRow) int { return cmp.Compare(a.rank(), b.rank()) })
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

// Stale reports whether nothing could be read: all of the page is from before.
func (p *overviewPage) Stale() bool { return len(p.Unseen) == 1 && p.Unseen[0].From.Equal(p.At) }

const troublesShown = 8

// First are the worst troubles.
func (p *overviewPage) First() []finding { return p.Troubles[:min(len(p.Troubles), troublesShown)] }

// Rest are the others.
func (p *overviewPage) Rest() []finding { return p.Troubles[min(len(p.Troubles), troublesShown):] }

// consumerRow is a consumer among others.
type consumerRow struct {
	admin.Queue
	recent
}

// rank sorts consumers by trouble: stopped ones first, then those with poisoned messages, then those that fail or lag.
func (c consumerRow) rank() int {
	is := func(tones ...string) bool {
		return slices.ContainsFunc(c.Stops, func(e admin.Explanation) bool { return slices.Contains(tones, tone(e.Reason)) })
	}
	switch {
	case is("bad"):
		return 0
	case c.Poisoned > 0:
		return 1
	case is("warn"):
		return 2
	case c.Spark.Bad > 0:
		return 3
	case c.OldestReady > lagging || len(c.Stops) > 0:
		return 4
	default:
		return 5
	}
}

// Idle says what a consumer does that nothing stops.
func (c consumerRow) Idle() string {
	switch {
	case c.Leased > 0, c.PerMinute > 0:
		return "running"
	case c.Ready > 0:
		return "waiting for a worker"
	case c.Delayed > 0:
		return "waiting until due"
	default:
		return "idle"
	}
}

const lagging = time.Minute // a message that is due for longer waits for long

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
