package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// View is the screen. It is of [tea.Model].
func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.WindowTitle = "asyncmonolith top"
	return v
}

// screen is all lines: a head, what there is to see, and a foot.
func (m *model) screen() string {
	head, foot := m.head(), m.foot()
	room := max(m.height-len(head)-len(foot), 1)
	var body []string
	switch {
	case m.help:
		body = helpLines()
	case m.overview.At.IsZero():
		body = []string{"Loading."}
	case m.view == consumers:
		body = m.consumers(room)
	case m.view == failures:
		body = m.failures(room)
	default:
		body = m.fleet(room)
	}
	body = body[:min(len(body), room)]
	for len(body) < room {
		body = append(body, "")
	}
	lines := append(append(head, body...), foot...)
	if over := len(lines) - m.height; over > 0 && m.height > 0 {
		lines = lines[:m.height]
	}
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, max(m.width, 1), "")
	}
	return strings.Join(lines, "\n")
}

// head is the first lines: how much there is of everything, and what is wrong with the database.
func (m *model) head() []string {
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
		for _, q := range m.queues {
			if n += sum.of(q); sum.of(q) >= most {
				more = "+"
			}
		}
		sums = append(sums, countAll(n)+more+" "+sum.says)
	}
	for _, q := range m.queues {
		perSecond += q.perSecond
	}
	if r := rate(perSecond); r != "" {
		sums = append(sums, r+"/s")
	}
	title, at := "asyncmonolith top", m.overview.At.UTC().Format("15:04:05")+" UTC"
	text := strings.Join(sums, " · ")
	space := m.width - wide(title) - wide(text) - wide(at) - 4
	first := ""
	switch {
	case space >= 0:
		first = styled(bold, title) + "  " + text + strings.Repeat(" ", space+2) + styled(dim, at)
	case m.width-wide(text)-wide(at)-2 >= 0:
		first = text + strings.Repeat(" ", m.width-wide(text)-wide(at)) + styled(dim, at)
	default:
		first = fit(text, m.width)
	}
	second := ""
	if m.trouble != "" {
		second = styled(red+bold, fit(m.trouble, m.width))
	}
	return []string{first, second}
}

// foot is the last lines: what is asked or said, and the keys.
func (m *model) foot() []string {
	said := fit(m.said, m.width)
	if m.asked != nil {
		said = m.asked.prompt(m.width)
	}
	var keys []string
	for i, name := range []string{"consumers", "failures", "processes"} {
		key := fmt.Sprint(" ", i+1, " ", name, " ")
		if i == m.view {
			key = styled(invert, key)
		}
		keys = append(keys, key)
	}
	if m.view == consumers {
		keys = append(keys, "s sort ", "p pause ")
	}
	text := strings.Join(append(keys, "? help ", "q quit"), " ")
	switch {
	case m.asked != nil:
		text = styled(dim, "enter goes on  esc changes nothing")
	case wide(text) > m.width:
		text = "1 2 3 views  ? help  q quit"
	}
	return []string{said, text}
}

func helpLines() []string {
	return strings.Split(`Keys
  1 2 3, tab   consumers · failures · processes and operations
  ↑ ↓, j k     choose a line; PgUp PgDn, g G go further
  s            sort by the next column, the one with ▾
  p            pause the chosen consumer, or resume it; asks for a note
  q, Ctrl-C    quit

Consumers
  RATE         runs in a second, in the last five minutes
  P50 P99      how long half of the runs took at most, and 99 in 100
  LAG          how late 99 in 100 began, after they were due
  OLDEST       how long the oldest ready message has been due
  10,000+      is not counted further

Any key goes back.`, "\n")
}

// scroll is the first line to show of so many, where there is room for some.
func scroll(chosen, room int) int { return max(chosen-max(room, 1)+1, 0) }

func (m *model) consumers(room int) []string {
	if len(m.queues) == 0 {
		return []string{"No consumer has messages."}
	}
	tableRoom := max(min(len(m.queues), room-1), 1)
	lines := m.queueTable().lines(m.width, scroll(m.line[consumers], tableRoom), tableRoom, m.line[consumers])
	for _, block := range [][]string{m.failing(), {m.processes()}, m.openOperations()} {
		if len(block) > 0 && len(lines)+1+len(block) <= room {
			lines = append(append(lines, ""), block...)
		}
	}
	return lines
}

func (m *model) queueTable() table {
	column := func(title string, drop int, cell func(q queue) string, style func(q queue) string) column {
		c := column{title: title, right: true, drop: drop}
		for _, q := range m.queues {
			c.cells = append(c.cells, cell(q))
		}
		if style != nil {
			c.style = func(line int) string { return style(m.queues[line]) }
		}
		return c
	}
	name := column("CONSUMER", 0, func(q queue) string { return q.Consumer }, func(q queue) string {
		if q.stopped {
			return yellow
		}
		return ""
	})
	name.right, name.most = false, max(m.width*2/5, 12)
	note := column("", 0, func(q queue) string { return q.note }, func(q queue) string {
		if q.stopped {
			return yellow
		}
		return dim
	})
	note.right, note.most = false, -1
	if m.width < 70 {
		note.drop = 9
	}
	bad := func(q queue) string {
		if q.failed && q.Poisoned > 0 {
			return red
		}
		return ""
	}
	return table{sorted: orders()[m.order].title, columns: columnsOf(
		name,
		column("READY", 0, func(q queue) string { return count(q.Ready) }, nil),
		column("DELAYED", 6, func(q queue) string { return count(q.Delayed) }, nil),
		column("LEASED", 4, func(q queue) string { return count(q.Leased) }, nil),
		column("POISONED", 0, func(q queue) string { return count(q.Poisoned) }, bad),
		column("RATE", 1, func(q queue) string { return rate(q.perSecond) }, nil),
		column("P50", 8, func(q queue) string { return atMost(q.half) }, nil),
		column("P99", 5, func(q queue) string { return atMost(q.most) }, nil),
		column("LAG", 7, func(q queue) string { return atMost(q.late) }, nil),
		column("OLDEST", 2, func(q queue) string { return age(q.OldestReady) }, nil),
		note)}
}

func columnsOf(columns ...column) []column { return columns }

// failsNow is for how long a failure counts as one of now.
const failsNow = 15 * time.Minute

// mostBelow is how many failures, and operations, there are below consumers.
const mostBelow = 4

// failing are the failures of now.
func (m *model) failing() []string {
	var found []admin.FailureGroup
	for _, f := range m.overview.Failures {
		if m.since(f.LastAt) <= failsNow {
			found = append(found, f)
		}
	}
	if len(found) == 0 {
		return nil
	}
	consumer, runs, text := column{title: "FAILING NOW", most: max(m.width/3, 12)}, column{title: "RUNS", right: true}, column{title: "ERROR", most: -1}
	first, version := column{title: "FIRST", right: true, drop: 2}, column{title: "SINCE", drop: 1}
	for _, f := range found[:min(len(found), mostBelow)] {
		consumer.cells = append(consumer.cells, f.Consumer)
		runs.cells = append(runs.cells, countAll(f.Runs))
		first.cells = append(first.cells, age(m.since(f.FirstAt)))
		version.cells = append(version.cells, f.FirstVersion)
		text.cells = append(text.cells, f.Sample)
	}
	return m.withMore(table{columns: columnsOf(consumer, runs, first, version, text)}, len(found), "2")
}

// withMore are the lines of a table of the first few, and how many more there are behind a key.
func (m *model) withMore(t table, all int, key string) []string {
	lines := t.lines(m.width, 0, mostBelow, -1)
	if all > mostBelow {
		lines = append(lines, styled(dim, fmt.Sprintf("%d more: press %s", all-mostBelow, key)))
	}
	return lines
}

// processes says how many there are.
func (m *model) processes() string {
	alive, lost := m.overview.Programs()
	last := ""
	if i := slices.IndexFunc(m.overview.Processes, func(p admin.Process) bool { return p.Status == admin.ProcessLost }); i >= 0 {
		p := m.overview.Processes[i]
		last = fmt.Sprintf(" (%s on %s, %s ago)", show.Text(p.Program), show.Text(p.Host), age(m.since(p.SeenAt)))
	}
	line := styled(bold, "PROGRAMS") + "  " + fmt.Sprint(alive) + " alive"
	if lost > 0 {
		line += ", " + styled(yellow, fmt.Sprint(lost, " lost")+last)
	}
	return line
}

// openOperations are those that are not over.
func (m *model) openOperations() []string {
	if len(m.overview.Operations) == 0 {
		return nil
	}
	t := m.operationTable()
	t.columns[0].title, t.columns[1].title = "", "OPERATIONS"
	t.columns = append(t.columns[1:5:5], t.columns[len(t.columns)-1])
	return m.withMore(t, len(m.overview.Operations), "3")
}

// since is how long ago something was when the overview was made.
func (m *model) since(t time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(m.overview.At.Sub(t), time.Millisecond)
}
