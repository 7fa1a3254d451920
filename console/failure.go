package console

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// failure is something that fails, and since when.
type failure struct {
	Consumer    string
	Fingerprint string
	ErrorType   string
	Sample      string
	Messages    int // poisoned
	Runs        int64
	FirstAt     time.Time
	LastAt      time.Time
	Since       string // a sentence, if a deploy may have begun it
}

func failureOf(f admin.FailureGroup, fleet []admin.Process) failure {
	return failure{
		Consumer: f.Consumer, Fingerprint: f.Fingerprint, ErrorType: f.ErrorType, Sample: f.Sample, Runs: f.Runs,
		FirstAt: f.FirstAt, LastAt: f.LastAt, Since: since(f, fleet),
	}
}

func failureOfGroup(g poison.Group, fleet []admin.Process) failure {
	f := failure{Consumer: g.Consumer, Fingerprint: g.Fingerprint, FirstAt: g.FirstAt, LastAt: g.LastAt}
	if g.Failure != nil {
		f = failureOf(*g.Failure, fleet)
		f.FirstAt, f.LastAt = earlier(f.FirstAt, g.FirstAt), later(f.LastAt, g.LastAt)
	}
	f.Messages = g.Messages
	return f
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

const deployTime = time.Hour // a failure that begins sooner after a deploy may come from it

// since says which version failed first, and how soon after its start.
func since(f admin.FailureGroup, fleet []admin.Process) string {
	if f.FirstVersion == "" {
		return ""
	}
	var started time.Time
	for _, p := range fleet {
		takes := func(c admin.ProcessConsumer) bool { return operator.Handles(p, f.Consumer, firstOf(c.PayloadTypes)) }
		if p.Version == f.FirstVersion && slices.ContainsFunc(p.Consumers, takes) {
			started = earlier(started, p.StartedAt)
		}
	}
	if after := f.FirstAt.Sub(started); !started.IsZero() && after >= 0 && after <= deployTime {
		return duration(max(after, time.Second)) + " after " + f.FirstVersion + " started"
	}
	return "first seen in " + f.FirstVersion
}

func firstOf(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}
