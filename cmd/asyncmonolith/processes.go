package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func (a *app) processesCommand() *cobra.Command {
	within := 24 * time.Hour
	c := &cobra.Command{
		Use: "processes", Short: "List the processes that work on the tables", Args: takes(cobra.NoArgs),
		Long: `List the processes that work on the tables, those first that were seen last: where they run, which version, and
how busy they are. One that vanished was not seen lately, and has not said that it stops.`,
		Example: "  asyncmonolith processes --within 1h",
		RunE: func(c *cobra.Command, _ []string) error {
			if within <= 0 {
				return usage(fmt.Errorf("--within %s: more than 0 is allowed", within))
			}
			seat, err := a.seat()
			if err != nil {
				return err
			}
			found, err := seat.Processes(c.Context(), within)
			if err != nil {
				return err
			}
			return processes().write(a, found, nil)
		},
	}
	c.Flags().DurationVar(&within, "within", within, "those seen within a time; they are kept for 7 days")
	return c
}

func processes() list[outbox.Process] {
	return list[outbox.Process]{
		titles: []string{"STATUS", "KIND", "HOST", "PID", "PROGRAM", "VERSION", "STARTED", "SEEN", "RUNNING", "QUEUED", "LIMIT", "TAKES", "STUCK"}, right: []bool{false, false, false, true, false, false, false, false, true, true, true},
		row: func(p outbox.Process) []any {
			return []any{p.Status, p.Kind, p.Host, p.PID, p.Program, p.Version, p.StartedAt, p.SeenAt, p.Running, p.Queued, p.Limit, takenBy(p), strings.Join(p.Stuck, ", ")}
		},
		empty: "No process has told of itself.",
	}
}

// takenBy are names of what a process works on.
func takenBy(p outbox.Process) string {
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
