package top

import (
	"context"
	"strings"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

// mostNote is how many bytes of a note the database keeps.
const mostNote = 1000

// question asks the user for a note before a consumer is paused or resumed, and then for a confirmation.
type question struct {
	consumer string
	resume   bool
	note     string
	sure     bool // the note is complete
}

// askPause asks about the chosen consumer.
func (m *model) askPause() {
	if m.view != consumers || len(m.queues) == 0 {
		return
	}
	q := m.queues[m.line[consumers]]
	m.asked = &question{consumer: q.Consumer, resume: !q.PausedAt.IsZero()}
}

// write adds printable text to the note.
func (q *question) write(text string) {
	if q.sure {
		return
	}
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	if len(q.note)+len(text) <= mostNote {
		q.note += text
	}
}

// answer handles a key while a question is open.
func (m *model) answer(key tea.KeyPressMsg) tea.Cmd {
	q := m.asked
	switch pressed := key.String(); {
	case pressed == "esc", q.sure && pressed != "y":
		m.asked, m.said = nil, "Nothing was changed."
	case q.sure:
		m.asked = nil
		m.said = "…"
		return func() tea.Msg { return m.do(m.carryOut(q)) }
	case pressed == "enter":
		q.sure = strings.TrimSpace(q.note) != ""
	case pressed == "backspace":
		if runes := []rune(q.note); len(runes) > 0 {
			q.note = string(runes[:len(runes)-1])
		}
	case pressed == "ctrl+u":
		q.note = ""
	default:
		q.write(key.Key().Text)
	}
	return nil
}

func (m *model) carryOut(q *question) func(context.Context) tea.Msg {
	return func(ctx context.Context) tea.Msg {
		if q.resume {
			return changed{show.Text(q.consumer) + " is resumed; shown within seconds.", m.Service.Resume(ctx, q.consumer, q.note)}
		}
		return changed{show.Text(q.consumer) + " is paused; shown within seconds.", m.Service.Pause(ctx, q.consumer, q.note)}
	}
}

func (q *question) prompt(width int) string {
	does := "Pause "
	if q.resume {
		does = "Resume "
	}
	switch does += show.Text(q.consumer); {
	case q.sure:
		return fit(does+" ("+q.note+")", width-14) + "?  y yes  n no"
	default:
		does += ": why?  "
		return does + tail(q.note, width-wide(does)-1) + "█"
	}
}
