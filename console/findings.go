package console

import (
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// finding is something that needs attention, with the page to look at.
type finding struct{ ops.Finding }

// Page is where to look.
func (f finding) Page() string {
	switch f.Check {
	case "poisoned":
		return linkTo("poisoned", "consumer", f.Subject).String()
	case "blocked_keys", "consumers", "pauses":
		if f.Subject == "" { // the check itself failed
			return "doctor"
		}
		return linkTo("consumer", "name", f.Subject).String()
	case "schedules":
		return linkTo("schedules", "name", f.Subject).String()
	case "processes", "projections", "operations":
		return f.Check
	default:
		return "doctor"
	}
}

// CurePage is the page for the command of its remedy, or empty.
func (f finding) CurePage() string {
	if strings.Contains(f.Remedy, "messages list --crashed") {
		return "suspects"
	}
	return ""
}

// trouble is one finding, or several of one kind.
type trouble []finding

// troubles groups findings by kind.
func troubles(found []ops.Finding) (all []trouble) {
	of := map[[2]string]int{}
	for _, f := range found {
		kind := [2]string{f.Check, string(f.Severity)}
		at, known := of[kind]
		if !known {
			at = len(all)
			of[kind], all = at, append(all, nil)
		}
		all[at] = append(all[at], finding{f})
	}
	return all
}

// Lead is the first of them.
func (t trouble) Lead() finding { return t[0] }

// Alone reports whether there is no other.
func (t trouble) Alone() bool { return len(t) == 1 }
