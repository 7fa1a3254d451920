package overview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// IsCircuit reports whether a circuit or circuit breaker stops a consumer.
func IsCircuit(stop admin.Explanation) bool {
	return stop.Reason == admin.CircuitBreakerOpen || stop.Reason == admin.CircuitOpen
}

// WithUnhandled returns queues whose Stops have the payload types that no live process handles.
func WithUnhandled(queues []admin.Queue, unhandled []admin.Unhandled) []admin.Queue {
	queues = slices.Clone(queues) // those of the last overview are shared
	for i := range queues {
		q := &queues[i]
		has := func(reason admin.State) bool {
			return slices.ContainsFunc(q.Stops, func(e admin.Explanation) bool { return e.Reason == reason })
		}
		var types []string
		for _, u := range unhandled {
			if u.Consumer == q.Consumer && u.PayloadType != "" {
				types = append(types, u.PayloadType)
			}
		}
		if len(types) > 0 && !has(admin.NoLiveProcess) && !has(admin.OtherPayload) {
			q.Stops = append(slices.Clone(q.Stops), admin.Explanation{Reason: admin.OtherPayload, Text: strings.Join(types, ", ")})
		}
	}
	return queues
}

// WithLastStops returns queues with the Stops that need the reports of processes as they were last.
func WithLastStops(queues, last []admin.Queue) []admin.Queue {
	return store.Each(queues, func(q admin.Queue) admin.Queue {
		i := slices.IndexFunc(last, func(l admin.Queue) bool { return l.Consumer == q.Consumer })
		if i >= 0 && q.Ready+q.Delayed > 0 {
			q.Stops = append(slices.Clone(q.Stops), slices.DeleteFunc(slices.Clone(last[i].Stops), isOwn)...)
		}
		return q
	})
}

// WithLastErrors returns queues whose open circuit breakers have the consumer's last error.
func WithLastErrors(queues []admin.Queue, failures []admin.FailureGroup) []admin.Queue {
	return store.Each(queues, func(q admin.Queue) admin.Queue {
		last := slices.IndexFunc(failures, func(f admin.FailureGroup) bool { return f.Consumer == q.Consumer })
		i := slices.IndexFunc(q.Stops, func(e admin.Explanation) bool { return e.Reason == admin.CircuitBreakerOpen })
		if last >= 0 && i >= 0 {
			q.Stops = slices.Clone(q.Stops)
			q.Stops[i].CircuitError = failures[last].Sample
		}
		return q
	})
}

// Uncounted returns the last queue of a consumer, if there is one, with only those Stops that need no
// process's report.
func Uncounted(last []admin.Queue, consumer string) []admin.Queue {
	last = slices.DeleteFunc(slices.Clone(last), func(q admin.Queue) bool { return q.Consumer != consumer })
	return store.Each(last, func(q admin.Queue) admin.Queue {
		q.Stops = slices.DeleteFunc(slices.Clone(q.Stops), func(e admin.Explanation) bool { return !isOwn(e) })
		return q
	})
}

// isOwn reports whether a stop is known without the reports of processes.
func isOwn(e admin.Explanation) bool {
	return slices.Contains([]admin.State{admin.Paused, admin.CircuitBreakerOpen, admin.KeyBlocked}, e.Reason)
}

// Stop describes why messages of a consumer do not start: "paused by ada: the provider is down (for
// 19m)". The error of a circuit is in quotation marks.
func Stop(e admin.Explanation, now time.Time) string {
	text := e.Reason.String()
	switch {
	case e.Text == "":
	case e.Reason == admin.Paused && strings.HasPrefix(e.Text, "by "):
		text += " " + e.Text
	default:
		text += ": " + e.Text
	}
	if e.CircuitError != "" {
		text += fmt.Sprintf(", %q", e.CircuitError)
	}
	if !e.Since.IsZero() {
		text += " (for " + age(now.Sub(e.Since)) + ")"
	}
	if !e.Until.IsZero() {
		text += "; next try at " + e.Until.UTC().Format("15:04:05 UTC")
	}
	return text
}

// age is a duration in one unit or two.
func age(d time.Duration) string {
	switch d = max(d, time.Second); {
	case d < time.Minute:
		return d.Truncate(time.Second).String()
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}

// Redacted returns processes and queues with the error texts of circuits as text shows them.
func Redacted(
	processes []admin.Process, queues []admin.Queue, text func(consumer, text string) string,
) ([]admin.Process, []admin.Queue) {
	processes = store.Each(processes, func(p admin.Process) admin.Process {
		p.OpenCircuits = store.Each(p.OpenCircuits, func(c bus.OpenCircuit) bus.OpenCircuit {
			if c.Reason != "" {
				c.Reason = text(c.Consumer, c.Reason)
			}
			return c
		})
		return p
	})
	queues = store.Each(queues, func(q admin.Queue) admin.Queue {
		q.Stops = store.Each(q.Stops, func(e admin.Explanation) admin.Explanation {
			if e.CircuitError != "" {
				e.CircuitError = text(q.Consumer, e.CircuitError)
			}
			return e
		})
		return q
	})
	return processes, queues
}

// Plural is "1 run" or "2 runs".
func Plural(n int64, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

// Counted is Plural of a count that stops at 10,000.
func Counted(n int64, one, more string) string {
	if n >= store.MostCounted {
		return fmt.Sprintf("%d or more %s", store.MostCounted, more)
	}
	return Plural(n, one, more)
}

// ErrorKind is the type of an error for people, or empty for types that say nothing.
func ErrorKind(name string) string {
	name = strings.TrimLeft(name, "*")
	switch pkg, _, _ := strings.Cut(name, "."); pkg {
	case "errors", "fmt":
		return ""
	case "asyncmonolith":
		return strings.ReplaceAll(strings.TrimPrefix(name, "asyncmonolith."), "_", " ")
	default:
		return name
	}
}
