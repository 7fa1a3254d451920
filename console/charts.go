package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// chart is columns over time. Its values are those of a table beside it.
type chart struct {
	Width, Height int
	Columns       []column
	Marks         []mark
	Most          int64 // the highest column
	Total         int64
	Bad           int64 // of Total: failed
	Label         string
}

// column is one of a chart, in the chart's units: done runs, and failed ones above them.
type column struct {
	X, Width        int
	GoodY, GoodHigh int
	BadY, BadHigh   int
	Text            string
	done, failed    int64
}

// mark is a text at the edge of a chart.
type mark struct {
	X, Y int
	Text string
}

const (
	sparkMinutes = 60
	sparkHeight  = 20
	markWidth    = 36 // a text nearer to the end is cut off
)

// spark is the last hour of a consumer, minute by minute.
func spark(now time.Time, minutes []operator.MinuteStats) chart {
	first := now.UTC().Truncate(time.Minute).Add(-(sparkMinutes - 1) * time.Minute)
	c := columns(first, span{slot: time.Minute, slots: sparkMinutes, width: 2}, sparkHeight, minutes)
	c.Label = fmt.Sprintf("Last hour: %s, %s failed", plural(c.Total, "run"), grouped(c.Bad))
	return c
}

// span is the time that a chart shows, in slots.
type span struct {
	Name, Title string // of the address and of the page
	slot        time.Duration
	slots       int
	width       int           // of a slot
	marks       time.Duration // between the times below the chart; 0 for none
}

// spans are those of a consumer's page. The first is the default.
func spans() []span {
	return []span{
		{Name: "48h", Title: "48 hours", slot: 30 * time.Minute, slots: 96, width: 5, marks: 6 * time.Hour},
		{Name: "6h", Title: "6 hours", slot: 5 * time.Minute, slots: 72, width: 7, marks: time.Hour},
		{Name: "1h", Title: "hour", slot: time.Minute, slots: 60, width: 8, marks: 10 * time.Minute},
	}
}

func (s span) time() time.Duration { return time.Duration(s.slots) * s.slot }

// first is when the first slot of a chart begins that ends now.
func (s span) first(now time.Time) time.Time {
	return now.UTC().Truncate(s.slot).Add(s.slot - s.time())
}

// of returns the slot of an instant, and whether the chart shows it.
func (s span) of(first, at time.Time) (i int, ok bool) {
	i = int(at.Sub(first) / s.slot)
	return i, !at.Before(first) && i < s.slots
}

// columns sorts minutes into the slots of a span.
func columns(first time.Time, s span, height int, minutes []operator.MinuteStats) chart {
	c := chart{Width: s.slots * s.width, Height: height, Columns: make([]column, s.slots)}
	for _, m := range minutes {
		i, ok := s.of(first, m.At)
		if !ok {
			continue
		}
		failed := m.Retried + m.Poisoned
		c.Columns[i].done += ran(m) - failed
		c.Columns[i].failed += failed
		c.Total += ran(m)
		c.Bad += failed
	}
	for _, col := range c.Columns {
		c.Most = max(c.Most, col.done+col.failed)
	}
	for i := range c.Columns {
		col := &c.Columns[i]
		at := first.Add(time.Duration(i) * s.slot)
		col.X, col.Width = i*s.width, max(s.width-1, 1)
		col.BadHigh, col.GoodHigh = high(col.failed, c.Most, height), high(col.done, c.Most, height)
		col.GoodHigh = min(col.GoodHigh, height-col.BadHigh)
		col.GoodY = height - col.GoodHigh
		col.BadY = col.GoodY - col.BadHigh
		col.Text = fmt.Sprintf("%s: %s done, %s failed", at.Format("15:04"), grouped(col.done), grouped(col.failed))
		if s.marks > 0 && at.Equal(at.Truncate(s.marks)) && c.Width-col.X >= markWidth {
			c.Marks = append(c.Marks, mark{X: col.X, Y: height, Text: hour(at)})
		}
	}
	c.Label = fmt.Sprintf("%s, %s failed; at most %s per column", plural(c.Total, "run"), grouped(c.Bad), grouped(c.Most))
	return c
}

// hour is the text below a chart.
func hour(at time.Time) string {
	if at.Hour() == 0 && at.Minute() == 0 {
		return at.Format("Jan 2")
	}
	return at.Format("15:04")
}

// high is the height of a column: at least 1 if it has runs.
func high(n, most int64, height int) int {
	if n == 0 || most == 0 {
		return 0
	}
	return max(1, int(float64(n)/float64(most)*float64(height)+0.5))
}

// slot is what a consumer did in a slot of a span.
type slot struct {
	At                                          time.Time
	Done, Retried, Poisoned, Snoozed, Discarded int64
	P50, P99, Waited                            time.Duration // of runs; Waited: 99 of 100 were due for less when they began
	run, lag                                    operator.Histogram
}

// Ran is how many runs ended in it.
func (s slot) Ran() int64 { return s.Done + s.Retried + s.Poisoned + s.Snoozed + s.Discarded }

// slotsOf sums up minutes.
func slotsOf(first time.Time, over span, minutes []operator.MinuteStats) []slot {
	slots := make([]slot, over.slots)
	for i := range slots {
		slots[i].At = first.Add(time.Duration(i) * over.slot)
	}
	for _, m := range minutes {
		i, ok := over.of(first, m.At)
		if !ok {
			continue
		}
		s := &slots[i]
		s.Done, s.Retried, s.Poisoned = s.Done+m.Done, s.Retried+m.Retried, s.Poisoned+m.Poisoned
		s.Snoozed, s.Discarded = s.Snoozed+m.Snoozed, s.Discarded+m.Discarded
		for j := range m.Run {
			s.run[j] += m.Run[j]
			s.lag[j] += m.Lag[j]
		}
	}
	for i := range slots {
		s := &slots[i]
		s.P50, s.P99, s.Waited = s.run.Quantile(0.5), s.run.Quantile(0.99), s.lag.Quantile(0.99)
	}
	return slots
}

// lines are two times over time, in steps: how long runs took, and how long messages waited for them.
type lines struct {
	Width, Height int
	Run, Wait     string // paths
	Marks         []mark
	Any           bool
}

const linesHeight = 96

// releases marks where versions of a consumer's programs started first.
func releases(first time.Time, s span, takers []taker) (marks []mark) {
	since := map[string]time.Time{}
	for _, t := range takers {
		if at, known := since[t.Version]; t.Version != "" && (!known || t.StartedAt.Before(at)) {
			since[t.Version] = t.StartedAt
		}
	}
	for _, version := range slices.Sorted(maps.Keys(since)) {
		if i, ok := s.of(first, since[version]); ok {
			marks = append(marks, mark{X: i * s.width, Y: linesHeight, Text: version + " since " + since[version].UTC().Format("15:04")})
		}
	}
	return marks
}

// levels are the bounds of a histogram, the lines' scale from the bottom up.
func levels() []time.Duration {
	const ms = time.Millisecond
	return []time.Duration{
		ms, 2 * ms, 5 * ms, 10 * ms, 25 * ms, 50 * ms, 100 * ms, 250 * ms, 500 * ms, time.Second, 10 * time.Second, time.Hour,
	}
}

func linesOf(slots []slot, width int) lines {
	l := lines{Width: len(slots) * width, Height: linesHeight}
	var run, wait strings.Builder
	for i, s := range slots {
		step(&run, i, width, s.P99)
		step(&wait, i, width, s.Waited)
	}
	l.Run, l.Wait = run.String(), wait.String()
	l.Any = l.Run != "" || l.Wait != ""
	for i, at := range levels() {
		if i%3 == 0 {
			l.Marks = append(l.Marks, mark{Y: levelY(i), Text: duration(at)})
		}
	}
	return l
}

// Reach is the width with the texts on the left.
func (l lines) Reach() int { return l.Width + 48 }

func levelY(level int) int { return linesHeight - 4 - level*(linesHeight-12)/(len(levels())-1) }

// step draws one slot of a line, or nothing if nothing ran.
func step(path *strings.Builder, i, width int, d time.Duration) {
	if d <= 0 {
		return
	}
	level := 0
	for level < len(levels())-1 && d > levels()[level] {
		level++
	}
	fmt.Fprintf(path, "M%d %dh%d", i*width, levelY(level), width)
}
