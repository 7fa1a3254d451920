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
	away   string // why the database cannot be read now
}

// view is what each template gets: the page, and what surrounds it.
type view struct {
	Title, Tab  string
	Data        any
	Environment string
	Who         ops.Principal
	Prefs       prefs
	Notice      string // of the form before
	Away        string // why the database cannot be read now; empty if it can
	Here        string // to come back to
	Now         time.Time
	Counts      map[string]tabCount // by the path of a tab
	assets      assets
	session     *operator.Session // nil: nothing is allowed
}

// Asset is the path of an embedded file.
func (v view) Asset(name string) string { return v.assets.Path(name) }

// May reports whether the principal may do that to a consumer.
func (v view) May(action ops.Action, consumer string) bool {
	return v.session != nil && operator.May(v.session, action, consumer) == nil
}

// MayDecide reports whether the principal may do that to an operation: the operation's own action is needed, too.
func (v view) MayDecide(action ops.Action, o ops.Operation) bool {
	return v.May(action, consumerOf(o.Target)) && v.May(o.Action, consumerOf(o.Target))
}

// tab is a link at the top of each page.
type tab struct {
	Path, Name, Key string
	Count           *tabCount // nil: none, or not known
}

// tabCount is the number beside the name of a tab.
type tabCount struct{ Text, Tone string }

// countsOf are the counts of tabs. They are those of the cached overview.
func countsOf(o operator.Overview) map[string]tabCount {
	counts := map[string]tabCount{}
	set := func(path string, n int64, tone string) {
		if n > 0 {
			counts[path] = tabCount{count(n), tone}
		}
	}
	var poisoned, urgent int64
	for _, q := range o.Queues {
		poisoned += q.Poisoned
	}
	for _, f := range o.Attention {
		if f.Severity == ops.Critical {
			urgent++
		}
	}
	_, lost := o.Programs()
	set("poisoned", poisoned, "bad")
	set("", urgent, "bad")
	set("processes", int64(lost), "warn")
	set("operations", int64(len(o.Operations)), "calm")
	return counts
}

// Tabs are the links at the top of each page. With g and the key the script goes there.
func (v view) Tabs() []tab {
	tabs := []tab{
		{"", "Overview", "o", nil}, {"messages", "Messages", "m", nil}, {"poisoned", "Poisoned", "p", nil}, {"schedules", "Schedules", "s", nil},
		{"processes", "Processes", "r", nil}, {"projections", "Projections", "j", nil}, {"operations", "Operations", "a", nil},
		{"doctor", "Doctor", "d", nil},
	}
	for i := range tabs {
		if c, known := v.Counts[tabs[i].Path]; known {
			tabs[i].Count = &c
		}
	}
	return tabs
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
