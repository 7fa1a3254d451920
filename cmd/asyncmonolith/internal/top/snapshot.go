package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// snapshot is an overview, with its consumers sorted.
type snapshot struct {
	overview operator.Overview
	queues   []queue
	order    int // index of orders()
}

func (s *snapshot) set(o operator.Overview) {
	s.overview = o
	s.queues = queuesOf(o)
	s.sort()
}

func (s *snapshot) sort() {
	compare := orders()[s.order].compare
	slices.SortStableFunc(s.queues, func(a, b queue) int { return cmp.Or(compare(a, b), cmp.Compare(a.Consumer, b.Consumer)) })
}

// keys identify the lines of a view.
func (s *snapshot) keys(view int) []string {
	var keys []string
	switch view {
	case consumers:
		for _, q := range s.queues {
			keys = append(keys, q.Consumer)
		}
	case failures:
		for _, f := range s.overview.Failures {
			keys = append(keys, f.Consumer+"\x00"+f.Fingerprint)
		}
	default:
		for _, p := range s.overview.Processes {
			keys = append(keys, p.ID)
		}
		for _, o := range s.overview.Operations {
			keys = append(keys, fmt.Sprint("#", o.ID))
		}
	}
	return keys
}

// totals sums up all consumers.
func (s *snapshot) totals() string {
	var perSecond float64
	var sums []string
	for _, sum := range []struct {
		says string
		of   func(queue) int64
	}{
		{"ready", func(q queue) int64 { return q.Ready }}, {"delayed", func(q queue) int64 { return q.Delayed }},
		{"leased", func(q queue) int64 { return q.Leased }}, {"poisoned", func(q queue) int64 { return q.Poisoned }},
	} {
		n, more := int64(0), ""
		for _, q := range s.queues {
			n += sum.of(q)
			if sum.of(q) >= most {
				more = "+"
			}
		}
		sums = append(sums, countAll(n)+more+" "+sum.says)
	}
	for _, q := range s.queues {
		perSecond += q.perSecond
	}
	if r := rate(perSecond); r != "" {
		sums = append(sums, r+"/s")
	}
	return strings.Join(sums, " · ")
}

// since is the time from t to the overview.
func (s *snapshot) since(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(s.overview.At.Sub(t), time.Millisecond)
}

// window is the time of rates and quantiles: whole minutes, and the current one.
const window = 5 * time.Minute

// queue is a consumer with its rate, quantiles and note.
type queue struct {
	admin.Queue
	perSecond        float64
	failed           bool // some runs, in the window
	half, most, late time.Duration
	note             string
	stopped          bool // until a person intervenes
}

func queuesOf(o operator.Overview) []queue {
	from, seconds := span(o)
	var found []queue
	for _, q := range o.Queues {
		shown := queue{Queue: q}
		var run, lag operator.Histogram
		var runs int64
		for _, m := range o.Minutes {
			if m.Consumer != q.Consumer || m.At.Before(from) {
				continue
			}
			runs += m.Done + m.Retried + m.Poisoned + m.Discarded + m.Snoozed
			shown.failed = shown.failed || m.Retried+m.Poisoned > 0
			for i := range run {
				run[i] += m.Run[i]
				lag[i] += m.Lag[i]
			}
		}
		shown.perSecond = float64(runs) / seconds
		shown.half, shown.most, shown.late = run.Quantile(0.5), run.Quantile(0.99), lag.Quantile(0.99)
		shown.note, shown.stopped = note(o, q)
		found = append(found, shown)
	}
	return found
}

// span returns the start of the window and its seconds. Minutes go by the database's clock, which can be ahead of o.At.
func span(o operator.Overview) (from time.Time, seconds float64) {
	at := o.At
	for _, m := range o.Minutes {
		if m.At.After(at) {
			at = m.At
		}
	}
	from = at.Truncate(time.Minute).Add(-window)
	return from, max(at.Sub(from).Seconds(), 1)
}

// note says why messages of a consumer do not start, and whether all of them wait for a person or a repair.
func note(o operator.Overview, q admin.Queue) (text string, stopped bool) {
	var notes []string
	for _, stop := range q.Stops {
		notes = append(notes, operator.Stop(stop, o.At))
		switch stop.Reason {
		case admin.Paused, admin.CircuitBreakerOpen, admin.CircuitOpen, admin.NoLiveProcess:
			stopped = true
		default:
		}
	}
	return strings.Join(notes, "; "), stopped
}

type order struct {
	title   string // of its column
	compare func(a, b queue) int
}

func orders() []order {
	return []order{
		{"CONSUMER", func(a, b queue) int { return 0 }},
		{"READY", func(a, b queue) int { return cmp.Compare(b.Ready, a.Ready) }},
		{"POISONED", func(a, b queue) int { return cmp.Compare(b.Poisoned, a.Poisoned) }},
		{"RATE", func(a, b queue) int { return cmp.Compare(b.perSecond, a.perSecond) }},
		{"P99", func(a, b queue) int { return cmp.Compare(b.most, a.most) }},
		{"OLDEST", func(a, b queue) int { return cmp.Compare(b.OldestReady, a.OldestReady) }},
	}
}
