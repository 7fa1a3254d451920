package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func (a *app) schedulesCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "schedules",
		Short: "List schedules, and run, pause or delete them",
		Long:  "List schedules and when they fire next, fire one at once, pause, resume and delete. A schedule is named by its id or by its name.",
		Example: `  asyncmonolith schedules list
  asyncmonolith schedules next nightly-report
  asyncmonolith schedules run nightly-report --yes --reason "the report was wrong"`,
	}
	root.AddCommand(a.listSchedulesCommand(), a.nextCommand(),
		a.scheduleCommand("run", "Fire a schedule once, beside its own times", "fire", "fires as soon as a process that has its payload type looks", (*ops.Session).RunSchedule),
		a.scheduleCommand("pause", "Keep a schedule from firing", "pause", "is paused", (*ops.Session).PauseSchedule),
		a.scheduleCommand("resume", "Let a paused schedule fire again, from its first time after now", "resume", "is resumed", (*ops.Session).ResumeSchedule),
		a.scheduleCommand("delete", "Delete a schedule for good", "delete", "is deleted", (*ops.Session).DeleteSchedule))
	return asGroup(root)
}

func (a *app) listSchedulesCommand() *cobra.Command {
	var filter schedule.Filter
	var page admin.Page
	c := &cobra.Command{
		Use: "list", Short: "List schedules", Args: takes(nothing),
		Long:    "List schedules in the order in which they were first written. With --show-payloads there is the text of the last error.",
		Example: "  asyncmonolith schedules list --tag billing",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkPage(page); err != nil {
				return err
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			found, next, err := session.Schedules().List(c.Context(), filter, page)
			if err != nil {
				return err
			}
			return schedules().write(a, found, next)
		},
	}
	c.Flags().StringVar(&filter.Name, "name", "", "the one with a name")
	c.Flags().StringVar(&filter.Tag, "tag", "", "those with a tag")
	_ = c.RegisterFlagCompletionFunc("name", a.completeSchedules)
	pageFlags(c, &page)
	a.contentFlag(c)
	return c
}

func schedules() list[ops.Schedule] {
	return list[ops.Schedule]{
		columns: []show.Column{{Title: "ID", Kind: show.Number}, {Title: "NAME"}, {Title: "NEXT", Kind: show.Whole}, {Title: "LAST", Kind: show.Whole, Gives: 4}, {Title: "EXPRESSION", Kind: show.Whole, Gives: 5}, {Title: "ZONE", Gives: 3}, {Title: "TAG", Gives: 1}, {Title: "PAYLOAD TYPE", Gives: 2}},
		row: func(s ops.Schedule) []any {
			next := show.Value(s.NextFire)
			if s.Paused {
				next = "paused"
			}
			return []any{s.ID, s.Name, next, s.LastFire, s.Expression, s.Zone, s.Tag, s.PayloadType}
		},
		below: func(s ops.Schedule) []string { return []string{s.LastError} },
		empty: "There are no schedules.",
	}
}

func (a *app) nextCommand() *cobra.Command {
	return &cobra.Command{
		Use: "next SCHEDULE", Short: "Show when a schedule fires next, and its last fires", Args: takes(one("schedule", "schedules list")), ValidArgsFunction: a.completeSchedules,
		Long:    "Show the next five times at which a schedule fires, in its time zone and in UTC, and its last ten fires.",
		Example: "  asyncmonolith schedules next nightly-report",
		RunE: func(c *cobra.Command, args []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			s, err := scheduleOf(c.Context(), session, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.line(s)
			}
			if s.Paused {
				if err := a.say("The schedule is paused."); err != nil {
					return err
				}
			}
			times := list[time.Time]{columns: []show.Column{{Title: "NEXT"}, {Title: "IN ITS ZONE"}}, row: func(t time.Time) []any {
				return []any{t, t.Format("2006-01-02 15:04:05 MST")}
			}, empty: "No fire is ahead."}
			if err := times.write(a, s.Next, nil); err != nil || len(s.Recent) == 0 {
				return err
			}
			a.gap()
			return list[schedule.Fire]{columns: []show.Column{{Title: "DUE"}, {Title: "FIRED"}, {Title: "MESSAGES", Kind: show.Number}}, row: func(f schedule.Fire) []any {
				return []any{f.Due, f.FiredAt, f.Messages}
			}, below: func(f schedule.Fire) []string { return []string{f.Error} }}.write(a, s.Recent, nil)
		},
	}
}

// scheduleCommand is one that changes a schedule.
func (a *app) scheduleCommand(name, short, would, said string, do func(*ops.Session, context.Context, string, int64) error) *cobra.Command {
	return a.changing(&cobra.Command{
		Use: name + " SCHEDULE", Short: short, Args: takes(one("schedule", "schedules list")), ValidArgsFunction: a.completeSchedules,
		Long:    short + ". It is named by its id or by its name.",
		Example: fmt.Sprintf("  asyncmonolith schedules %s nightly-report --yes --reason \"as agreed\"", name),
		RunE: func(c *cobra.Command, args []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			s, err := scheduleOf(c.Context(), session, args[0])
			if err != nil {
				return err
			}
			who := fmt.Sprintf("schedule %d (%s, %s)", s.ID, s.PayloadType, s.Expression)
			if s.Name != "" {
				who = fmt.Sprintf("schedule %d (%q, %s)", s.ID, s.Name, s.Expression)
			}
			return a.change(session, would+" "+who, func(session *ops.Session) error { return do(session, c.Context(), a.reason, s.ID) },
				map[string]any{"schedule": s.ID, "done": name}, "The "+who+" "+said+".")
		},
	})
}

// scheduleOf is the schedule with a name, or else an id.
func scheduleOf(ctx context.Context, session *ops.Session, name string) (ops.Schedule, error) {
	named, _, err := session.Schedules().List(ctx, schedule.Filter{Name: name}, admin.Page{Size: 1})
	if err != nil {
		return ops.Schedule{}, err
	}
	if len(named) > 0 {
		return session.Schedules().Get(ctx, named[0].ID)
	}
	id, err := strconv.ParseInt(name, 10, 64)
	if err == nil {
		return session.Schedules().Get(ctx, id)
	}
	all, _, err := session.Schedules().List(ctx, schedule.Filter{}, admin.Page{Size: mostListed})
	names := make([]string, 0, len(all))
	for _, s := range all {
		names = append(names, s.Name)
	}
	if len(names) == 0 {
		return ops.Schedule{}, errors.Join(err, fmt.Errorf("schedule %q: %w: there are no schedules", name, errNotFound))
	}
	return ops.Schedule{}, fmt.Errorf("schedule %q: %w%s", name, errNotFound, meant(name, names, quotedName, "asyncmonolith schedules list"))
}

// completeSchedules completes names of schedules.
func (a *app) completeSchedules(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completions(func(ctx context.Context, session *ops.Session) (names []string, err error) {
		found, _, err := session.Schedules().List(ctx, schedule.Filter{}, admin.Page{Size: mostListed})
		for _, s := range found {
			names = append(names, s.Name)
		}
		return names, err
	})
}
