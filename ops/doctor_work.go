package ops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/overview"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Limits of the checks of processes and pending work.

const (
	processorsKnown  = 7 * 24 * time.Hour // how long process rows are kept
	overdue          = time.Minute        // of a schedule
	pauseForgotten   = 24 * time.Hour
	changeForgotten  = 10 * time.Minute // of a change by ids
	runnerLate       = time.Minute      // of an operation, if a runner is alive
	noRunnerLate     = 10 * time.Second // of an operation, if none is alive
	schedulesLooked  = 1000
	schedulesWithin  = time.Second / 2 // to compute next fires, while the transaction is open
	operationsLooked = 200
)

func isSchema(err error) bool { return errors.Is(err, outbox.ErrSchemaOutdated) }

func (d *doctor) checkUnhandled(ctx context.Context, db bun.IDB) (found []Finding, err error) {
	fleet, err := d.service.admin.Processes(ctx, db, processorsKnown)
	if err != nil {
		return nil, err
	}
	unhandled, err := d.service.unhandled(ctx, db, fleet)
	if err != nil || len(unhandled) == 0 {
		return nil, err
	}
	if !slices.ContainsFunc(fleet, func(p admin.Process) bool { return p.Kind == "processor" }) {
		return []Finding{warning(unhandled[0].Consumer, "Messages wait, but no processor has reported in the last 7 days.",
			"Start a processor with this consumer. Programs whose heartbeat is off do not report.")}, nil
	}
	c := d.causes(ctx)
	c.unhandled = unhandled
	return c.noProcess(), nil
}

// readQueues reads what several checks share, because it is the most expensive query. A queue that
// cannot be counted in time does not affect the others.
func (d *doctor) readQueues(ctx context.Context) {
	s := d.service
	d.failed = s.seeQueues(ctx, s.config.DB, &d.seen, summary{})
	seen, err := lookIn(ctx, s, s.config.DB, lookTime, func(ctx context.Context, db bun.IDB) (summary, error) {
		now := d.seen
		err := s.readFailures(ctx, db, &now)
		return now, err
	})
	if err == nil {
		d.seen = seen
	} else { // only the texts of errors are missing
		d.seen.Miss(time.Time{}, err, "failures")
	}
	d.seen.Queues = overview.WithLastErrors(d.seen.Queues, d.seen.Failures)
}

// causes is what findings about consumers are made of.
func (d *doctor) causes(ctx context.Context) causes {
	shown := func(consumer, text string) string { return d.session.text(ctx, Content{Consumer: consumer}, text) }
	_, queues := overview.Redacted(nil, d.seen.Queues, shown)
	return causes{
		now: time.Now(), queues: queues, failures: d.session.failures(ctx, d.seen.Failures), poisoners: d.session.failures(ctx, d.seen.Poisoners),
	}
}

// inQueues is a check of the queues. It does not pass if a queue could not be read.
func (d *doctor) inQueues(find func(causes) []Finding) finder {
	return func(ctx context.Context, _ bun.IDB) ([]Finding, error) {
		unseen := store.Each(d.seen.Unseen, func(u overview.Unseen) Finding { return warning("", u.String(), curable) })
		return append(unseen, find(d.causes(ctx))...), d.failed
	}
}

func (d *doctor) checkProcesses(ctx context.Context, db bun.IDB) ([]Finding, error) {
	fleet, err := d.service.admin.Processes(ctx, db, overview.LostWithin)
	if err != nil {
		return nil, err
	}
	shown := func(consumer, text string) string { return d.session.text(ctx, Content{Consumer: consumer}, text) }
	fleet, queues := overview.Redacted(fleet, d.seen.Queues, shown) // without queues, circuit breakers are reported as open circuits
	return causes{now: time.Now(), queues: queues}.troubled(fleet), nil
}

// lost is the finding for a program whose runs were lost.
func (c causes) lost(runs []admin.Process) Finding {
	cure, seen := "Find out why it ended: out of memory, a crash, or a kill before it drained.", runs[0].SeenAt
	var kinds []string
	for _, p := range runs {
		if p.SeenAt.After(seen) {
			seen = p.SeenAt
		}
		switch kind := p.Kind; kind {
		case "processor":
			cure += " A message that it held may be the cause. List such: asyncmonolith messages list --crashed."
			kinds = append(kinds, kind)
		case "projections", "relays", overview.RunnerKind:
			kinds = append(kinds, "runner of "+kind)
		default:
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return warning(processName(runs[0]), fmt.Sprintf("Lost, last seen %s ago: %s. Other processes take over.", c.since(seen),
		strings.Join(slices.Compact(kinds), " and ")), cure)
}

// checkSchedules computes the next fire of each schedule, as far as time allows.
func (d *doctor) checkSchedules(ctx context.Context, db bun.IDB) (found []Finding, err error) {
	now, err := d.service.store.Now(ctx, db)
	if err != nil {
		return nil, err
	}
	fleet, err := d.service.admin.Processes(ctx, db, overview.LostWithin)
	if err != nil {
		return nil, err
	}
	rows, next, err := d.service.schedules.List(ctx, db, schedule.Filter{}, admin.Page{Size: schedulesLooked, Brief: true})
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(schedulesWithin)
	for _, row := range rows {
		if time.Now().After(until) {
			next = &admin.Page{}
			break
		}
		if text, remedy := sickness(row, now, fleet); text != "" {
			found = append(found, critical(cmp.Or(row.Name, fmt.Sprintf("schedule %d", row.ID)), text, remedy))
		}
	}
	if next != nil {
		found = append(found, warning("", "The doctor has not checked all schedules.", "Check the others page by page."))
	}
	return found, nil
}

// sickness explains why a schedule does not fire. The text is empty if the schedule fires.
func sickness(row schedule.Schedule, now time.Time, fleet []admin.Process) (text, remedy string) {
	if row.Paused {
		return "", ""
	}
	if row.LastError != "" {
		return fmt.Sprintf("The last fire failed. The next attempt is at %s. The error says why.", flow.Instant(row.NextFire)),
			"Read the schedule's error. Fix its expression, zone or payload, or the produce middleware."
	}
	if _, err := schedule.Next(row.Expression, row.Zone, row.NextFire.Add(-time.Nanosecond), 1); err != nil {
		return "The expression or zone is invalid, or never fires again.", "Update or delete the schedule."
	}
	if late := now.Sub(row.NextFire); late > overdue {
		text := fmt.Sprintf("Overdue by %s.", roughly(late))
		fires := func(p admin.Process) bool {
			return p.Status == admin.ProcessAlive && slices.Contains(p.Schedules, row.PayloadType)
		}
		if !slices.ContainsFunc(fleet, fires) {
			return fmt.Sprintf("%s No live process fires schedules of payload type %q.", text, row.PayloadType),
				"Run a schedule processor in a program that has consumers of this payload type."
		}
		return text, "Read the logs of the schedule processors: they hang, or cannot write."
	}
	return "", ""
}

func (d *doctor) checkPauses(ctx context.Context, db bun.IDB) (found []Finding, err error) {
	now, err := d.service.store.Now(ctx, db)
	if err != nil {
		return nil, err
	}
	paused, err := d.service.store.Flow.PausedConsumers(ctx, db)
	if err != nil {
		return nil, err
	}
	old := make(map[string]store.Paused)
	var names []string
	for _, p := range paused {
		if now.Sub(p.PausedAt.Time) > pauseForgotten {
			old[p.ConsumerType], names = p, append(names, p.ConsumerType)
		}
	}
	queues, err := d.service.store.Reports.Stats(ctx, db, names)
	for _, q := range queues {
		p, waiting := old[q.Consumer], q.Ready+q.Delayed
		if waiting == 0 {
			continue
		}
		by := ""
		if p.PausedBy != "" {
			by = " by " + p.PausedBy
		}
		found = append(found, warning(q.Consumer,
			fmt.Sprintf("Paused%s for %s. Waiting messages: %s.", by, roughly(now.Sub(p.PausedAt.Time)), counted(waiting)),
			"Resume the consumer, or cancel messages that are not needed."))
	}
	return found, err
}

func (d *doctor) checkOperations(ctx context.Context, db bun.IDB) (found []Finding, err error) {
	rows, err := d.service.store.Operations.List(
		ctx, db, store.OperationFilter{States: names(Waiting, Canary, Running, Paused, Started)}, operationsLooked,
	)
	if err != nil {
		return nil, err
	}
	var fleet []admin.Process
	if slices.ContainsFunc(rows, func(row store.Operation) bool { return awaits(row, noRunnerLate) }) { // otherwise the answer is not needed
		if fleet, err = d.service.admin.Processes(ctx, db, overview.LostWithin); err != nil {
			return nil, err
		}
	}
	for _, row := range rows {
		if text, remedy := stillness(row, fleet); text != "" {
			found = append(found, warning(fmt.Sprintf("operation %d (%s by %s)", row.ID, row.Kind, row.Actor), text, remedy))
		}
	}
	return found, nil
}

// awaits reports whether an operation is late by more than late and has had no lease for that
// long.
func awaits(row store.Operation, late time.Duration) bool {
	switch OperationState(row.State) {
	case Waiting, Canary, Running:
		return !row.LeasedUntil.Add(late).After(row.Now.Time) && row.Now.Sub(row.StartsAt.Time) > late
	default:
		return false
	}
}

// stillness explains why an operation makes no progress. The text is empty if it does.
func stillness(row store.Operation, fleet []admin.Process) (text, remedy string) {
	projection := newOperation(row).Target.Projection
	late := func() string { return roughly(row.Now.Sub(row.StartsAt.Time)) }
	switch state := OperationState(row.State); {
	case state == Paused:
		text = "Paused itself"
		if note, _, _ := strings.Cut(row.Note, foreign); note != "" { // the rest may be content
			text += ": " + note
		}
		return text + ".", "Fix the cause and resume the operation, or stop it."
	case state == Started && row.Now.Sub(row.CreatedAt.Time) > changeForgotten:
		since := roughly(row.Now.Sub(row.CreatedAt.Time))
		return fmt.Sprintf("Started %s ago, with no known outcome: its process may have died.", since), fmt.Sprintf(
			"Check the messages, repeat the change where needed, and close the operation. "+
				"On the command line: asyncmonolith operations stop %d.", row.ID)
	case awaits(row, noRunnerLate) && !overview.HasRunner(fleet, row.ID, projection):
		if projection != "" {
			return fmt.Sprintf("Due for %s, but no live process runs operations and projection %q.", late(), projection),
				"Start a process that runs both."
		}
		return fmt.Sprintf("Due for %s, but no live process runs operations.", late()),
			fmt.Sprintf("Start a process that runs operations. Or run this one: asyncmonolith operations run %d.", row.ID)
	case awaits(row, runnerLate):
		return fmt.Sprintf("Due for %s, but no process runs it.", late()), "Start another process that runs operations."
	case longCanary(row) != "":
		return "The canary waits: " + longCanary(row) + ".",
			"Start or resume their consumer, and the operation continues. Or stop the operation."
	default:
		return "", ""
	}
}
