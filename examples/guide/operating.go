package guide

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// ShowPoisoned prints the newest poisoned messages of a consumer.
func ShowPoisoned(ctx context.Context, db bun.IDB, store *poison.Store, out io.Writer) error {
	// snippet: poisoned
	messages, _, err := store.List(ctx, db, poison.Filter{Consumer: "charge-card"}, admin.Page{Size: 20})
	if err != nil {
		return err
	}
	for _, m := range messages {
		fmt.Fprintln(out, m.ID, m.Reason, len(m.Errors), "failed runs")
	}
	// end
	return nil
}

// ShowGroups prints what is poisoned, by what fails alike.
func ShowGroups(ctx context.Context, db bun.IDB, store *poison.Store, out io.Writer) error {
	// snippet: groups
	groups, more, err := store.Groups(ctx, db, "") // of all consumers
	if err != nil {
		return err
	}
	for _, g := range groups {
		fmt.Fprintln(out, g.Consumer, g.Fingerprint, g.Messages, "from", g.FirstAt, "to", g.LastAt)
		if g.Failure != nil {
			fmt.Fprintln(out, g.Failure.Sample, "since", g.Failure.FirstAt, "with", g.Failure.FirstVersion)
		}
	}
	// end
	if more {
		fmt.Fprintln(out, "and more")
	}
	return nil
}

// RequeueGroup requeues what belongs together, and nothing that fails meanwhile.
func RequeueGroup(ctx context.Context, db bun.IDB, store *poison.Store, fingerprint string, out io.Writer) error {
	// snippet: batches
	filter := poison.Filter{Consumer: "charge-card", Fingerprint: fingerprint}
	seen, err := store.Preview(ctx, db, filter, 10_000)
	if err != nil || seen.Messages == 0 {
		return err
	}
	fmt.Fprintln(out, seen.Messages, "messages,", seen.Conflicts, "conflicts,", seen.Unhandled, "unhandled")
	filter.PoisonedBefore = seen.At // exclude messages poisoned later
	done, err := store.RequeueWhere(ctx, db, filter, seen.Messages)
	fmt.Fprintln(out, done.Requeued, "requeued")
	// end
	return err
}

// RequeuePoisoned has messages run again, the first with another payload.
func RequeuePoisoned(ctx context.Context, db bun.IDB, store *poison.Store, first int64) (poison.Result, error) {
	// snippet: requeue
	if err := store.EditAndRequeue(ctx, db, first, OrderPlaced{OrderID: "o-1"}); err != nil {
		return poison.Result{}, err
	}
	result, err := store.RequeueWhere(ctx, db, poison.Filter{Consumer: "charge-card", Error: "declined"}, 1000)
	// end
	return result, err
}

// Why prints why messages of a consumer wait.
func Why(ctx context.Context, db bun.IDB, client *admin.Client, out io.Writer) error {
	// snippet: explain
	old := admin.Filter{Consumer: "charge-card", OlderThan: time.Hour}
	messages, _, err := client.List(ctx, db, old, admin.Page{Size: 10})
	if err != nil {
		return err
	}
	for _, m := range messages {
		e, err := client.Explain(ctx, db, m.ID)
		fmt.Fprintln(out, m.ID, e.Reason, e.Text, err)
	}
	// end
	return nil
}

// Fleet prints who runs, and what happened lately.
func Fleet(ctx context.Context, db bun.IDB, client *admin.Client, out io.Writer) error {
	processes, err := client.Processes(ctx, db, time.Hour)
	if err != nil {
		return err
	}
	for _, p := range processes {
		fmt.Fprintln(out, p.Kind, p.Program, p.Version, p.Host, p.Status, p.Running, "of", p.Limit)
	}
	failures, err := client.Failures(ctx, db, "charge-card", 10)
	for _, f := range failures {
		fmt.Fprintln(out, f.Runs, f.Sample, "since", f.FirstAt, "with", f.FirstVersion)
	}
	return err
}

// TakeBack cancels messages.
func TakeBack(ctx context.Context, db bun.IDB, client *admin.Client, ids []int64, out io.Writer) error {
	result, err := client.Cancel(ctx, db, ids...)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d cancelled, too late for %v, gone before %v\n", result.Changed, result.Running, result.Missing)
	return nil
}

// Maintain stops a consumer everywhere while its provider is worked on.
func Maintain(ctx context.Context, db bun.IDB, client *admin.Client, work func() error) error {
	if err := client.Pause(ctx, db, "charge-card", admin.PauseNote{}); err != nil {
		return err
	}
	if err := work(); err != nil {
		return err // still paused
	}
	return client.Resume(ctx, db, "charge-card")
}

// Stop ends the run of a message, wherever it runs.
func Stop(ctx context.Context, db *bun.DB, client *admin.Client, id int64, out io.Writer) error {
	stopped, err := client.Stop(ctx, db, id) // waits for the outcome
	if err != nil {
		return err // ErrNotFound, or no process has answered before the end of ctx
	}
	fmt.Fprintln(out, id, stopped) // "cancelled", or "too_late"
	return nil
}
