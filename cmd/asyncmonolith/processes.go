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
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

type processesCommand struct {
	app    *app
	within time.Duration
	all    bool
}

func (p *processesCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use: "processes", Short: "List the processes that use the tables", Args: checkArgs(noArgs),
		Long: `List the processes that use the tables, lost ones first, by host: their release, their load, and their parts, such as a
processor and a scheduler. A lost process has not reported for 45 s and did not stop gracefully. Stopped processes are
counted; --all lists them. --json writes a line per part.`,
		Example: "  asyncmonolith processes --within 1h",
		PreRunE: func(*cobra.Command, []string) error {
			if p.within <= 0 {
				return usage(fmt.Errorf("--within %s: more than 0 is allowed", p.within))
			}
			return nil
		},
		RunE: p.app.onSession(p.run),
	}
	c.Flags().BoolVar(&p.all, "all", false, "list stopped processes, too")
	c.Flags().DurationVar(&p.within, "within", 24*time.Hour, "processes that reported within this time, up to 7 days")
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
	if p.app.json {
		return list[admin.Process]{}.write(p.app.output, found, nil)
	}
	shown, stopped := operator.Programs(found), 0
	if !p.all {
		shown = slices.DeleteFunc(shown, func(program operator.Program) bool { return program.Status == admin.ProcessStopped })
		stopped = len(operator.Programs(found)) - len(shown)
	}
	if err := programs().write(p.app.output, shown, nil); err != nil || stopped == 0 {
		return err
	}
	return p.app.say("%s stopped within %s: --all lists them.", plural(stopped, "program"), p.within)
}

func programs() list[operator.Program] {
	return list[operator.Program]{
		columns: []show.Column{{Title: "STATUS"}, {Title: "HOST"}, {Title: "PID", Kind: show.Number},
			{Title: "PROGRAM", Gives: 3}, {Title: "VERSION", Gives: 6}, {Title: "SEEN", Kind: show.Whole, Gives: 5},
			{Title: "STARTED", Kind: show.Whole, Gives: 2}, {Title: "PARTS", Gives: 1}},
		row: func(p operator.Program) []any {
			return []any{p.Status, p.Host, p.PID, p.Program, p.Version, p.Seen, p.Started, partsOf(p)}
		},
		below: func(p operator.Program) (texts []string) {
			for _, part := range p.Parts {
				texts = append(texts, formatNames(part.Kind+": %s", takenBy(part)), formatNames("stuck in: %s", part.Stuck))
				for _, circuit := range part.OpenCircuits {
					texts = append(texts, formatCircuit(circuit))
				}
			}
			return texts
		},
		empty: "No process has reported.",
	}
}

// partsOf names the parts of a program, with how busy they are.
func partsOf(p operator.Program) string {
	var parts []string
	for _, part := range p.Parts {
		parts = append(parts, strings.TrimSpace(part.Kind+" "+runningIn(part)))
	}
	return strings.Join(parts, ", ")
}

// formatCircuit says which circuit is open, since when, and why.
func formatCircuit(c bus.OpenCircuit) string {
	text := "circuit open: " + c.Consumer
	if !c.Since.IsZero() {
		text += ", since " + show.Value(c.Since)
	}
	if c.Reason != "" {
		text += fmt.Sprintf(", %q", c.Reason)
	}
	return text
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

// takenBy names what a part of a program works on.
func takenBy(p admin.Process) []string {
	var names []string
	for _, c := range p.Consumers {
		names = append(names, c.Name)
	}
	for _, more := range [][]string{p.Schedules, p.Projections, p.Relays} {
		names = append(names, more...)
	}
	if p.Operation != 0 {
		names = append(names, fmt.Sprint("only operation ", p.Operation))
	}
	const most = 3
	if rest := len(names) - most; rest > 0 {
		return append(names[:most:most], fmt.Sprintf("and %d more", rest))
	}
	return names
}
