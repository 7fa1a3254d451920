package outbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	fleetSince = 7 * 24 * time.Hour // processes that say who took a message
	fleetNamed = 3                  // processes that a sentence names
)

// explainFleet goes by what processes tell of themselves, instead of the registry of this one: who takes
// the message, and whether that is alive and has room. Where nobody has told anything it says nothing.
func (a *Admin) explainFleet(ctx context.Context, db bun.IDB, st *store.Store, e *Explanation) error {
	if !slices.Contains([]State{NoConsumer, OtherPayload, Ready}, e.Reason) {
		return nil
	}
	rows, err := st.Processes(ctx, db, fleetSince, mostListed)
	if err != nil {
		return err
	}
	var known bool
	var takers, gone []Process
	for _, p := range store.Each(rows, newProcess) {
		known = known || p.Kind == "processor"
		switch takes := p.Takes(e.Message.Consumer, e.Message.PayloadType); {
		case takes && p.Status == ProcessAlive:
			takers = append(takers, p)
		case takes:
			gone = append(gone, p)
		}
	}
	due := fmt.Sprintf("It has been due since %s.", instant(e.Message.AvailableAt))
	switch {
	case !known && a.operates() && e.Reason == Ready:
		e.Reason = NoConsumer
		e.Text = fmt.Sprintf("%s This program has no consumers, and no process has told in the last 7 days which it has.", due)
	case !known:
	case len(takers) == 0 && len(gone) == 0:
		if e.Reason == Ready && a.operates() {
			e.Reason = NoProcess
			e.Text = fmt.Sprintf("%s No process that has told of itself in the last 7 days takes it: start one with consumer %q for payload type %q.", due, e.Message.Consumer, e.Message.PayloadType)
		} else if e.Reason == Ready {
			e.Reason = NoProcess
			e.Text = fmt.Sprintf("%s No process that has told of itself in the last 7 days takes it, though this program has consumer %q: start a processor of it.", due, e.Message.Consumer)
		}
	case len(takers) == 0:
		last := gone[0] // seen last
		e.Reason = NoProcess
		e.Text = fmt.Sprintf("%s No live process takes it. The last that did was %s, which %s at %s.", due, last.said(), last.Status, instant(last.SeenAt))
	case !slices.ContainsFunc(takers, func(p Process) bool { return !slices.Contains(p.Closed, e.Message.Consumer) }):
		e.Reason = GateClosed
		e.Text = fmt.Sprintf("%s The gate of consumer %q is closed in every process that takes it: %s.", due, e.Message.Consumer, said(takers))
	case !slices.ContainsFunc(takers, func(p Process) bool { return p.Running < p.Limit }):
		e.Reason = Busy
		e.Text = fmt.Sprintf("%s Every process that takes it was at its limit when it was last seen: %s.", due, said(takers))
	case e.Reason != Ready, a.operates():
		e.Reason = Ready
		e.Text = fmt.Sprintf("%s It is taken by %s, and waits for room there.", due, said(takers))
	}
	return nil
}

// Takes tells whether it consumes messages whose consumer and payload type are stored like that.
func (p Process) Takes(consumer, payloadType string) bool {
	return slices.ContainsFunc(p.Consumers, func(c ProcessConsumer) bool { return c.takes(consumer, payloadType) })
}

// said is how a sentence names a process.
func (p Process) said() string {
	name := p.Program
	if p.Version != "" {
		name += " " + p.Version
	}
	return fmt.Sprintf("%s (pid %d on %s)", name, p.PID, p.Host)
}

// said names some processes.
func said(processes []Process) string {
	names := store.Each(processes[:min(len(processes), fleetNamed)], Process.said)
	if more := len(processes) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
