package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	fleetSince = 7 * 24 * time.Hour // age limit of the process reports that are used
	fleetNamed = 3                  // processes named in a sentence
)

// fleet is what processes report about a message.
type fleet struct {
	known        bool      // at least one processor has reported
	takers, gone []Process // processes that consume it: alive, and not alive
}

// fleet reads what processes report about the message.
func (x *explainer) fleet(ctx context.Context) (f fleet, err error) {
	if x.others != nil {
		return *x.others, nil
	}
	rows, err := x.store.Reports.Processes(ctx, x.db, fleetSince, mostListed)
	if err != nil {
		return f, err
	}
	for _, p := range store.Each(rows, newProcess) {
		f.known = f.known || p.Kind == "processor"
		switch takes := p.handles(x.e.Message.Consumer, x.e.Message.PayloadType); {
		case takes && p.Status == ProcessAlive:
			f.takers = append(f.takers, p)
		case takes:
			f.gone = append(f.gone, p)
		}
	}
	x.others = &f
	return f, nil
}

// explainFleet uses the reports of processes instead of this process's registry: which processes
// consume the message, and whether they are alive and have free capacity. Without reports it
// changes nothing, unless this program has no consumers.
func (x *explainer) explainFleet(f fleet) {
	due := x.due()
	switch {
	case !f.known && x.client.operates() && x.e.Reason == Ready:
		x.e.Reason = NoConsumer
		x.e.Text = fmt.Sprintf("%s This program has no consumers, and no process has reported its consumers in the last 7 days.", due)
	case !f.known:
	case len(f.takers) == 0 && len(f.gone) == 0:
		if x.e.Reason == Ready && x.client.operates() {
			x.e.Reason = NoLiveProcess
			x.e.Text = fmt.Sprintf(
				"%s No process with this consumer has reported in the last 7 days. Start one with consumer %q for payload type %q.", due,
				x.e.Message.Consumer, x.e.Message.PayloadType,
			)
		} else if x.e.Reason == Ready {
			x.e.Reason = NoLiveProcess
			x.e.Text = fmt.Sprintf("%s No process with this consumer has reported in the last 7 days. This program has consumer %q: start a "+
				"processor.", due, x.e.Message.Consumer)
		}
	case len(f.takers) == 0:
		last, ended := f.gone[0], "was last seen"
		if last.Status == ProcessStopped {
			ended = "stopped"
		}
		x.e.Reason, x.e.Since = NoLiveProcess, last.SeenAt
		x.e.Text = fmt.Sprintf(
			"%s No live process consumes the message. The last one, %s, %s at %s.", due, last.said(), ended, flow.Instant(last.SeenAt),
		)
	case !slices.ContainsFunc(f.takers, func(p Process) bool { return p.Running < p.Limit }):
		x.e.Reason = Saturated
		x.e.Text = fmt.Sprintf("%s No process that consumes the message had a free worker at its last report: %s.", due, said(f.takers))
	case x.elsewhere, x.client.operates():
		x.e.Text = fmt.Sprintf("%s The message waits for a free worker in %s.", due, said(f.takers))
	}
}

// elsewhereAs returns the message's consumer as a live process reports it, or the zero value.
func (x *explainer) elsewhereAs(ctx context.Context) (c ProcessConsumer, err error) {
	others, err := x.fleet(ctx)
	for _, p := range others.takers {
		c, _ = p.consumer(x.e.Message.Consumer)
	}
	return c, err
}

// handles reports whether the process handles messages with that stored consumer and payload type.
func (p Process) handles(consumer, payloadType string) bool {
	return slices.ContainsFunc(p.Consumers, func(c ProcessConsumer) bool { return heartbeat.Consumer(c).Takes(consumer, payloadType) })
}

// said formats a process for a sentence.
func (p Process) said() string {
	name := p.Program
	if p.Version != "" {
		name += " " + p.Version
	}
	return fmt.Sprintf("%s (pid %d on %s)", name, p.PID, p.Host)
}

// said formats a list of processes for a sentence.
func said(processes []Process) string {
	names := store.Each(processes[:min(len(processes), fleetNamed)], Process.said)
	if more := len(processes) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
