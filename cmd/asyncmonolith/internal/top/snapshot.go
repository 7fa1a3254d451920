package top

import (
	"cmp"
	"context"
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

// read reads an overview. It reads blocked keys only if the overview is a new one, since overviews are cached.
func read(ctx context.Context, service Service, last operator.Overview) (operator.Overview, error) {
	o, err := service.Overview(ctx)
	if err != nil {
		return o, err
	}
	parked := make(map[string]int64)
	if o.At.Equal(last.At) {
		for _, q := range last.Queues {
			parked[q.Consumer] = q.BlockedKeys
		}
	} else {
		keys, err := service.BlockedKeys(ctx, mostKeys)
		if err != nil {
			return o, err
		}
		for _, key := range keys {
			parked[key.Consumer]++
		}
	}
	queues := slices.Clone(o.Queues) // a cached overview is shared
	for i := range queues {
		queues[i].BlockedKeys = parked[queues[i].Consumer]
	}
	o.Queues = queues
	return o, nil
}

// mostKeys is how many blocked keys are counted.
const mostKeys = 1000

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

// note says whether a consumer is paused, its breaker is open, no process takes it or keys are blocked.
func note(o operator.Overview, q admin.Queue) (text string, stopped bool) {
	var notes []string
	if !q.PausedAt.IsZero() {
		by := "paused"
		if q.PausedBy != "" {
			by += " by " + q.PausedBy
		}
		if q.PauseNote != "" {
			by += ": " + q.PauseNote
		}
		notes, stopped = append(notes, by), true
	}
	if q.Breaker != nil {
		notes, stopped = append(notes, q.Breaker.String()), true
	}
	if q.Ready+q.Delayed > 0 && !taken(o, q.Consumer) {
		notes, stopped = append(notes, "no live process takes it"), true
	}
	if q.BlockedKeys > 0 {
		notes = append(notes, plural(q.BlockedKeys, "key")+" blocked")
	}
	return strings.Join(notes, "; "), stopped
}

// taken reports whether a live process takes messages of a consumer. It is true if no process reports its consumers.
func taken(o operator.Overview, consumer string) bool {
	any := false
	for _, p := range o.Processes {
		for _, c := range p.Consumers {
			if p.Status == admin.ProcessAlive {
				any = true
				if c.Name == consumer || slices.Contains(c.Former, consumer) {
					return true
				}
			}
		}
	}
	return !any
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
