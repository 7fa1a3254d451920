package ops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/overview"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// causes finds what stops consumers: one finding each, with its number, its age, and the error and
// the release that began it. Error texts in it are redacted.
type causes struct {
	now       time.Time
	queues    []admin.Queue
	failures  []admin.FailureGroup // the most recent first
	poisoners []admin.FailureGroup // of the last poisoned message of each consumer
	unhandled []admin.Unhandled
}

func causesOf(o summary) causes {
	return causes{now: o.At, queues: o.Queues, failures: o.Failures, poisoners: o.Poisoners, unhandled: o.Unhandled}
}

const causeText = 120 // bytes of an error text in a finding

// quoted returns the beginning of an error text in quotation marks, or "" for none.
func quoted(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if len(line) > causeText {
		line = strings.ToValidUTF8(line[:causeText], "") + "…"
	}
	if line == "" {
		return ""
	}
	return `"` + line + `"`
}

// failed returns the first failure of a consumer: `"provider answered 502" (41 failed runs, since v1.1.0)`.
func failed(all []admin.FailureGroup, consumer string) string {
	i := slices.IndexFunc(all, func(f admin.FailureGroup) bool { return f.Consumer == consumer })
	if i < 0 {
		return ""
	}
	f := all[i]
	about := overview.Plural(f.Runs, "failed run", "failed runs")
	if f.FirstVersion != "" {
		about += ", since " + f.FirstVersion
	}
	if why := quoted(cmp.Or(f.Sample, overview.ErrorKind(f.ErrorType))); why != "" {
		return why + " (" + about + ")"
	}
	return about
}

// sentence joins what is known, and leaves out what is not.
func sentence(what, why string) string {
	if why == "" {
		return what + "."
	}
	return what + ": " + why + "."
}

func (c causes) poisoned() (found []Finding) {
	for _, q := range c.queues {
		if q.Poisoned == 0 {
			continue
		}
		text := overview.Counted(q.Poisoned, "poisoned message", "poisoned messages")
		if q.OldestPoisoned > 0 {
			text += ", the oldest for " + roughly(q.OldestPoisoned)
		}
		found = append(found, critical(q.Consumer, sentence(text, failed(c.poisoners, q.Consumer)), fmt.Sprintf(
			"Fix the cause, then requeue or discard them. See the errors: asyncmonolith poisoned groups --consumer %[1]s "+
				"--show-payloads. Requeue them: asyncmonolith requeue --consumer %[1]s.", word(q.Consumer))))
	}
	return found
}

func (c causes) blocked() (found []Finding) {
	for _, q := range c.queues {
		for _, stop := range q.Stops {
			if stop.Reason != admin.KeyBlocked {
				continue
			}
			text := stop.Text
			if !stop.Since.IsZero() {
				text += ", the first for " + c.since(stop.Since)
			}
			found = append(found, critical(q.Consumer, sentence(text, ""),
				"Fix the cause, then requeue or discard the poisoned messages. List the keys: asyncmonolith messages blocked-keys."))
		}
	}
	return found
}

// since is the time from t until now.
func (c causes) since(t time.Time) string { return roughly(max(c.now.Sub(t), time.Second)) }

// circuits finds open circuits. Names of the same consumer share one finding.
func (c causes) circuits() (found []Finding) {
	told := make(map[admin.OpenBreaker]bool)
	for _, q := range c.queues {
		i := slices.IndexFunc(q.Stops, overview.IsCircuit)
		if i < 0 || q.Breaker != nil && told[*q.Breaker] {
			continue
		}
		remedy := "Fix the dependency: the consumer then resumes."
		if q.Breaker != nil {
			told[*q.Breaker] = true
			remedy += fmt.Sprintf(" To try one message now: asyncmonolith consumers probe %s.", word(q.Consumer))
		}
		found = append(found, critical(q.Consumer, c.circuit(q, q.Stops[i]), remedy))
	}
	return found
}

func (c causes) circuit(q admin.Queue, stop admin.Explanation) string {
	what := "Circuit open"
	if !stop.Since.IsZero() {
		what += " for " + c.since(stop.Since)
	}
	if stop.Text != "" {
		what += ", " + stop.Text
	}
	why := quoted(stop.CircuitError)
	if last := failed(c.failures, q.Consumer); strings.HasPrefix(last, `"`) && (why == "" || q.Breaker != nil) {
		why = last // with the number of runs and the release
	}
	text := sentence(what, why)
	if !stop.Until.IsZero() {
		text += fmt.Sprintf(" Next try at %s.", stop.Until.UTC().Format("15:04:05 UTC"))
	}
	return text
}

// noProcess finds consumers of which no live process handles all messages.
func (c causes) noProcess() (found []Finding) {
	var told []string
	for _, u := range c.unhandled {
		if slices.Contains(told, u.Consumer) {
			continue
		}
		told = append(told, u.Consumer)
		found = append(found, critical(u.Consumer, c.unhandledText(u.Consumer),
			"Start a program that has this consumer with this payload type. After a rename, add the former name as an alias. "+
				"Cancel messages that are not needed."))
	}
	return found
}

func (c causes) unhandledText(consumer string) string {
	var types []string
	for _, u := range c.unhandled {
		if u.Consumer == consumer && u.PayloadType != "" {
			types = append(types, fmt.Sprintf("%q", u.PayloadType))
		}
	}
	what, due, last := "messages", "", ""
	for _, q := range c.queues {
		i := slices.IndexFunc(q.Stops, func(e admin.Explanation) bool { return e.Reason == admin.NoLiveProcess })
		if q.Consumer != consumer || i < 0 {
			continue
		}
		what, last = overview.Counted(q.Ready+q.Delayed, "message", "messages"), q.Stops[i].Text
		if since := q.Stops[i].Since; !since.IsZero() {
			last += " " + c.since(since) + " ago"
		}
		if q.OldestReady > 0 {
			due = ", due for up to " + roughly(q.OldestReady)
		}
	}
	switch {
	case len(types) == 1:
		what += " of payload type " + types[0]
	case len(types) > 1:
		what += " of payload types " + strings.Join(types, ", ")
	default:
		what += " with keys"
	}
	return sentence("No live process handles "+what+due, last)
}

// word quotes a name as one shell word.
func word(name string) string {
	if name != "" && strings.IndexFunc(name, func(r rune) bool { return !isPlain(r) }) < 0 {
		return name
	}
	return "'" + strings.ReplaceAll(name, "'", `'\''`) + "'"
}

// counted formats a count that is capped.
func counted(n int64) string {
	if n >= store.MostCounted {
		return fmt.Sprintf("%d or more", store.MostCounted)
	}
	return fmt.Sprint(n)
}
