package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

type processesCommand struct {
	app    *app
	within time.Duration
}

func (p *processesCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use: "processes", Short: "List the processes that work on the tables", Args: checkArgs(noArgs),
		Long: `List the processes that work on the tables, those that are alive first, by host: where they run, which version, and
how busy they are. One that is lost was not seen lately, and has not said that it stops.`,
		Example: "  asyncmonolith processes --within 1h",
		PreRunE: func(*cobra.Command, []string) error {
			if p.within <= 0 {
				return usage(fmt.Errorf("--within %s: more than 0 is allowed", p.within))
			}
			return nil
		},
		RunE: p.app.onSession(p.run),
	}
	c.Flags().DurationVar(&p.within, "within", 24*time.Hour, "those seen within a time; they are kept for 7 days")
	return c
}

func (p *processesCommand) run(ctx context.Context, session *operator.Session, _ []string) error {
	found, err := session.Processes(ctx, p.within)
	if err != nil {
		return err
	}
	slices.SortStableFunc(found, func(a, b admin.Process) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Kind, b.Kind))
	})
	return processes().write(p.app.output, found, nil)
}

func processes() list[admin.Process] {
	return list[admin.Process]{
		columns: []show.Column{{Title: "STATUS"}, {Title: "KIND"}, {Title: "HOST"}, {Title: "PID", Kind: show.Number},
			{Title: "PROGRAM", Gives: 3}, {Title: "VERSION", Gives: 6}, {Title: "SEEN", Kind: show.Whole, Gives: 5},
			{Title: "STARTED", Kind: show.Whole, Gives: 2}, {Title: "RUNNING", Kind: show.Number, Gives: 7}, {Title: "TAKES", Gives: 1}},
		row: func(p admin.Process) []any {
			return []any{p.Status, p.Kind, p.Host, p.PID, p.Program, p.Version, p.SeenAt, p.StartedAt, runningIn(p), takenBy(p)}
		},
		below: func(p admin.Process) []string {
			return []string{formatNames("stuck in: %s", p.Stuck), formatNames("stopped by a circuit or breaker: %s", p.OpenCircuits)}
		},
		empty: "No process has reported.",
	}
}

// runningIn shows running messages, claimed messages that wait for a slot, and the limit.
func runningIn(p admin.Process) string {
	switch {
	case p.Limit == 0:
		return ""
	case p.Queued > 0:
		return fmt.Sprintf("%d+%d of %d", p.Running, p.Queued, p.Limit)
	default:
		return fmt.Sprintf("%d of %d", p.Running, p.Limit)
	}
}

// takenBy names what a process works on.
func takenBy(p admin.Process) string {
	var names []string
	for _, c := range p.Consumers {
		names = append(names, c.Name)
	}
	for _, more := range [][]string{p.Schedules, p.Projections, p.Relays} {
		names = append(names, more...)
	}
	const most = 3
	if rest := len(names) - most; rest > 0 {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", rest)
	}
	return strings.Join(names, ", ")
}
