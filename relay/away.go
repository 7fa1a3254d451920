package relay

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/presence"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Health returns how the runner is doing, without touching the database: it is ready while Run runs
// and the database answers, as far as it has been asked. A broker that is away is in OpenCircuits,
// as "receive:" or "relay:" and the name of what waits for it: a receiver if its subscriber is a
// [broker.OutageNotifier], a log relay if its circuit is open. A receiver that leaves its records to a
// newer instance is in OpenCircuits, too.
func (r *Runner) Health() bus.Health {
	h := bus.Health{Err: r.outage.Err()}
	for _, rc := range r.receivers {
		if away := rc.runs.absent(); !away.since.IsZero() {
			h.OpenCircuits = append(h.OpenCircuits, bus.OpenCircuit{Consumer: rc.consumerName(), Since: away.since, Reason: errorlog.Text(away.reason)})
		}
	}
	for _, l := range r.logs {
		if since, reason, open := l.circuit.Tripped(); open {
			h.OpenCircuits = append(h.OpenCircuits, bus.OpenCircuit{Consumer: l.checkpoint(), Since: since, Reason: errorlog.Text(reason)})
		}
	}
	h.Ready = h.Err == nil && r.serving.Load()
	return h
}

// doing is what others are told: who waits for a broker.
func (r *Runner) doing() presence.State {
	return presence.State{OpenCircuits: store.Each(r.Health().OpenCircuits, func(g bus.OpenCircuit) string { return g.Consumer })}
}

// absence is what a receiver knows of its broker while that is away.
type absence struct {
	since  time.Time // zero while it is there
	reason error
}

// brokerAnswers is told by the subscriber whether its broker does: it logs when an outage begins, and
// when it ends.
func (r *receiving) brokerAnswers(err error) {
	runner := r.runs.by.Load()
	if runner == nil { // it does not run here
		return
	}
	before := r.runs.broker(err)
	switch began := before.since.IsZero(); {
	case err != nil && began:
		runner.config.Logger.Warn("receiver waits for the broker", "receiver", r.name, "error", errorlog.Text(err))
	case err == nil && !began:
		runner.config.Logger.Info("receiver has its broker again", "receiver", r.name, "after", time.Since(before.since))
	}
}

// broker notes whether the broker answers, and returns what was known before.
func (s *running) broker(err error) (before absence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.away
	switch {
	case err == nil:
		s.away = absence{}
	case before.since.IsZero():
		s.away = absence{since: time.Now(), reason: err}
	default:
		s.away.reason = err
	}
	return before
}

// absent returns since when nothing is received, and why: the broker is away, or newer instances receive.
func (s *running) absent() absence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away.since.IsZero() {
		return s.newer
	}
	return s.away
}

// text says why nothing comes; it is empty while the broker is there.
func (a absence) text() string {
	if a.since.IsZero() {
		return ""
	}
	return fmt.Sprintf("the broker does not answer: %s", errorlog.Text(a.reason))
}
