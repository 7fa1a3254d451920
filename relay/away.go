package relay

import (
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/presence"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Health returns the runner's health without querying the database. The runner is ready while Run
// runs and the last query succeeded. OpenCircuits has "receive:" or "relay:" and the name of what
// waits for its broker: a receiver whose subscriber is a [broker.OutageNotifier], or a log relay
// whose circuit is open. It also has receivers that leave their records to a newer instance.
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

// doing is the state in the heartbeat: what waits for a broker.
func (r *Runner) doing() presence.State {
	return presence.State{OpenCircuits: store.Each(r.Health().OpenCircuits, func(g bus.OpenCircuit) string { return g.Consumer })}
}

// absence is why and since when a receiver receives nothing.
type absence struct {
	since  time.Time // zero while it receives
	reason error
}

// brokerAnswers is called by the subscriber with its broker's state. It logs the begin and end of
// an outage.
func (r *receiving) brokerAnswers(err error) {
	runner := r.runs.by.Load()
	if runner == nil { // not running here
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

// broker records whether the broker answers and returns the previous state.
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

// absent returns since when and why nothing is received: the broker is unavailable, or newer
// instances receive.
func (s *running) absent() absence {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away.since.IsZero() {
		return s.newer
	}
	return s.away
}

// text describes the outage; it is empty while the broker is available.
func (a absence) text() string {
	if a.since.IsZero() {
		return ""
	}
	return fmt.Sprintf("the broker does not answer: %s", errorlog.Text(a.reason))
}
