package top

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// View implements [tea.Model].
func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.WindowTitle = "asyncmonolith top"
	return v
}

func (m *model) screen() string {
	head, foot := m.head(), m.foot()
	room := max(m.height-len(head)-len(foot), 1)
	p := page{&m.snapshot, m.width, m.line[m.view]}
	var body []string
	switch {
	case m.help:
		body = helpLines()
	case m.overview.At.IsZero():
		body = []string{"Loading."}
	case m.view == consumers:
		body = p.consumers(room)
	case m.view == failures:
		body = p.failures(room)
	default:
		body = p.processes(room)
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

// head draws the totals, and any trouble with the database.
func (m *model) head() []string {
	title, at := "asyncmonolith top", m.overview.At.UTC().Format("15:04:05")+" UTC"
	text := m.totals()
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

// foot draws the question or the last result, and the keys.
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
		text = styled(dim, "enter continues  esc cancels")
	case wide(text) > m.width:
		text = "1 2 3 views  ? help  q quit"
	}
	return []string{said, text}
}

func helpLines() []string {
	return strings.Split(`Keys
  1 2 3, tab   consumers · failures · processes and operations
  ↑ ↓, j k     select a line; PgUp PgDn, g G go further
  s            sort by the next column; ▾ marks it
  p            pause or resume the selected consumer; asks for a reason
  q, Ctrl-C    quit

Consumers
  RATE         runs per second in the last five minutes
  P50 P99      the run time that 50 % and 99 % of runs do not exceed
  LAG          the delay after due that 99 % of runs do not exceed
  OLDEST       how long the oldest ready message has been due
  10,000+      counting stops at 10,000

Press any key to go back.`, "\n")
}
