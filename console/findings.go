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
	case "blocked_keys", "consumers", "pauses", "circuit_breakers":
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

// remedy is a link to where a finding can be cured.
type remedy struct{ Text, Page string }

// Remedies are what can be done about it in the console, for those who may.
func (f finding) Remedies(v view) (all []remedy) {
	change := func(action ops.Action, text string) {
		if f.Subject != "" && v.May(action, f.Subject) {
			all = append(all, remedy{text, linkTo("confirm", "do", string(action), "consumer", f.Subject).String()})
		}
	}
	switch f.Check {
	case "circuit_breakers":
		if strings.Contains(f.Remedy, "consumers probe") {
			change(ops.Probe, "Try one now")
		}
	case "pauses":
		change(ops.Resume, "Resume")
	case "processes":
		if strings.Contains(f.Remedy, "messages list --crashed") {
			all = append(all, remedy{"Crash suspects", "suspects"})
		}
	}
	return all
}

// Advice is its remedy without the sentences that have a command: pages have links instead.
func (f finding) Advice() string {
	var kept []string
	for _, sentence := range strings.Split(strings.TrimSuffix(f.Remedy, "."), ". ") {
		if sentence != "" && !strings.Contains(sentence, "asyncmonolith ") {
			kept = append(kept, sentence)
		}
	}
	if len(kept) == 0 {
		return ""
	}
	return strings.Join(kept, ". ") + "."
}

// Name is the check in words.
func (f finding) Name() string { return strings.ReplaceAll(f.Check, "_", " ") }
