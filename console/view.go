package console

import (
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// layout is what the layout template needs to know about a page.
type layout struct {
	title  string
	tab    string // its path
	status int    // defaults to 200
}

// view is what each template gets: the page, and what surrounds it.
type view struct {
	Title, Tab  string
	Data        any
	Environment string
	Who         ops.Principal
	Prefs       prefs
	Notice      string // of the form before
	Here        string // to come back to
	Now         time.Time
	assets      assets
}

// Asset is the path of an embedded file.
func (v view) Asset(name string) string { return v.assets.Path(name) }

// May reports whether the principal may do that to a consumer.
func (v view) May(action ops.Action, consumer string) bool {
	return operator.May(v.Who, action, consumer) == nil
}

// MayDecide reports whether the principal may do that to an operation: the operation's own action is needed, too.
func (v view) MayDecide(action ops.Action, o ops.Operation) bool {
	return v.May(action, consumerOf(o.Target)) && v.May(o.Action, consumerOf(o.Target))
}

// tab is a link at the top of each page.
type tab struct{ Path, Name, Key string }

// Tabs are the links at the top of each page. With g and the key the script goes there.
func (view) Tabs() []tab {
	return []tab{
		{"", "Overview", "o"}, {"messages", "Messages", "m"}, {"poisoned", "Poisoned", "p"}, {"suspects", "Suspects", "u"},
		{"schedules", "Schedules", "s"}, {"processes", "Processes", "r"}, {"projections", "Projections", "j"},
		{"operations", "Operations", "a"}, {"doctor", "Doctor", "d"},
	}
}

// Tone is the colour of the environment: that of production warns.
func (v view) Tone() string {
	name := strings.ToLower(v.Environment)
	switch {
	case strings.Contains(name, "prod") || name == "live":
		return "bad"
	case strings.Contains(name, "stag") || strings.Contains(name, "pre"):
		return "warn"
	default:
		return "calm"
	}
}
