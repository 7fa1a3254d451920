package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// window is over how long rates and times are told: as many whole minutes, and the present one.
const window = 5 * time.Minute

// queue is a consumer as it is shown.
type queue struct {
	admin.Queue
	perSecond        float64
	failed           bool // some of its runs did, in the window
	half, most, late time.Duration
	note             string
	stopped          bool // nothing of it runs, until a person does something
}

func queuesOf(o ops.Overview) []queue {
	from, seconds := span(o)
	var found []queue
	for _, q := range o.Queues {
		shown := queue{Queue: q}
		var run, lag admin.Histogram
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

// span is when the window begins, and how many seconds it has. The minutes are those of the database's
// clock, of which the last minute says something.
func span(o ops.Overview) (from time.Time, seconds float64) {
	at := o.At
	for _, m := range o.Minutes {
		if m.At.After(at) {
			at = m.At
		}
	}
	from = at.Truncate(time.Minute).Add(-window)
	return from, max(at.Sub(from).Seconds(), 1)
}

// note is what else there is to know of a consumer.
func note(o ops.Overview, q admin.Queue) (text string, stopped bool) {
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
		notes = append(notes, plural(q.BlockedKeys, "key")+" parked")
	}
	return strings.Join(notes, "; "), stopped
}

// taken reports whether a process that is alive takes messages of a consumer, as far as any reports.
func taken(o ops.Overview, consumer string) bool {
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

// order is a way to sort consumers.
type order struct {
	title string // of its column
	less  func(a, b queue) int
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

func (m *model) sort() {
	less := orders()[m.order].less
	slices.SortStableFunc(m.queues, func(a, b queue) int { return cmp.Or(less(a, b), cmp.Compare(a.Consumer, b.Consumer)) })
}

// plural counts things.
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if strings.HasSuffix(thing, "s") {
		return count(n) + " " + thing + "es"
	}
	return count(n) + " " + thing + "s"
}

// most is the number from which on messages are not counted.
const most = 10_000

// count is a number of messages; nothing is nothing.
func count(n int64) string {
	switch {
	case n == 0:
		return ""
	case n >= most:
		return "10,000+"
	case n >= 1000:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	default:
		return fmt.Sprint(n)
	}
}

// rate is how many there are in a second.
func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return ""
	case perSecond < 0.05:
		return "<0.1"
	case perSecond < 100:
		return fmt.Sprintf("%.1f", perSecond)
	default:
		return fmt.Sprintf("%.0f", perSecond)
	}
}

// atMost is the upper end of a part of a histogram.
func atMost(d time.Duration) string {
	switch {
	case d == 0:
		return ""
	case d > 10*time.Second:
		return ">10s"
	default:
		return d.String()
	}
}

// age is how long ago something was, in one unit or two.
func age(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < time.Second:
		return "<1s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}
