package top

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// queryTime bounds each query.
const queryTime = 10 * time.Second

// model is the state of the program. It is a [tea.Model].
type model struct {
	Config
	ctx      context.Context
	inFlight *inFlight

	width, height int
	snapshot
	trouble string // why the snapshot is not up to date

	selection
	help  bool
	asked *question
	said  string // result of the last change
}

func newModel(ctx context.Context, c Config, first operator.Overview, err error) *model {
	m := &model{Config: c, ctx: ctx, width: 80, height: 24, inFlight: new(inFlight)}
	m.see(first, err)
	return m
}

// The messages to a model, besides those of the terminal.
type (
	looked struct {
		overview operator.Overview
		err      error
	}
	lookNow struct{}
	changed struct {
		said string
		err  error
	}
)

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd { return m.later() }

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case lookNow:
		return m, m.look()
	case looked:
		m.see(msg.overview, msg.err)
		return m, m.later()
	case changed:
		m.said = msg.said
		if msg.err != nil {
			m.said = m.plain(msg.err)
		}
	case tea.PasteMsg:
		if m.asked != nil {
			m.asked.write(msg.Content)
		}
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// later reads again after the interval.
func (m *model) later() tea.Cmd {
	return tea.Tick(m.Every, func(time.Time) tea.Msg { return lookNow{} })
}

// do runs a query.
func (m *model) do(fn func(context.Context) tea.Msg) tea.Msg {
	if !m.inFlight.begin() {
		return nil
	}
	defer m.inFlight.all.Done()
	ctx, cancel := context.WithTimeout(m.ctx, queryTime)
	defer cancel()
	return fn(ctx)
}

// look reads a new overview.
func (m *model) look() tea.Cmd {
	return func() tea.Msg {
		return m.do(func(ctx context.Context) tea.Msg {
			o, err := m.Service.Overview(ctx)
			return looked{o, err}
		})
	}
}

// see shows a new overview, or why there is none.
func (m *model) see(o operator.Overview, err error) {
	m.trouble = ""
	switch {
	case err != nil:
		m.trouble = "Stale: " + m.plain(err)
		return
	case len(o.Unseen) > 0:
		m.trouble = o.Unseen[0].String() // Why may show where the database is
	}
	m.set(o)
	m.follow(m.keys)
}

func (m *model) plain(err error) string { return show.Text(m.Say(err)) }

func (m *model) press(key tea.KeyPressMsg) tea.Cmd {
	if key.String() == "ctrl+c" {
		return tea.Quit
	}
	if m.asked != nil {
		return m.answer(key)
	}
	m.said = ""
	if m.help {
		m.help = false
		if key.String() != "q" {
			return nil
		}
	}
	switch key.String() {
	case "q":
		return tea.Quit
	case "ctrl+z":
		return tea.Suspend
	case "?", "h":
		m.help = true
	case "1", "2", "3":
		m.view = int(key.String()[0] - '1')
	case "tab":
		m.view = (m.view + 1) % views
	case "up", "k":
		m.move(-1, m.keys(m.view))
	case "down", "j":
		m.move(1, m.keys(m.view))
	case "pgup":
		m.move(-10, m.keys(m.view))
	case "pgdown":
		m.move(10, m.keys(m.view))
	case "home", "g":
		m.move(-1<<20, m.keys(m.view))
	case "end", "G":
		m.move(1<<20, m.keys(m.view))
	case "s":
		if m.view == consumers {
			m.order = (m.order + 1) % len(orders())
			m.sort()
			m.follow(m.keys)
		}
	case "p":
		m.askPause()
	}
	return nil
}
