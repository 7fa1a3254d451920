package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func schedulesGroup(a *app) *cobra.Command {
	group := &cobra.Command{
		Use:   "schedules",
		Short: "List schedules, and run, change, pause or delete them",
		Long:  "List schedules and their next fires. Fire, update, pause, resume and delete them, by id or by name.",
		Example: `  asyncmonolith schedules list
  asyncmonolith schedules next nightly-report
  asyncmonolith schedules run nightly-report --yes --reason "the report was wrong"`,
	}
	group.AddCommand((&schedulesList{app: a}).command(), (&scheduleNext{app: a}).command())
	for _, x := range []scheduleChange{
		{name: "run", short: "Fire a schedule once, now", would: "fire",
			said: "fires at the next poll of a process with its payload type", do: (*operator.Schedules).Trigger},
		{name: "pause", short: "Pause a schedule", would: "pause", said: "is paused", do: (*operator.Schedules).Pause},
		{name: "resume", short: "Resume a paused schedule, from its first fire after now", would: "resume",
			said: "is resumed", do: (*operator.Schedules).Resume},
		{name: "delete", short: "Delete a schedule", would: "delete", said: "is deleted", do: (*operator.Schedules).Delete},
	} {
		x.app = a
		group.AddCommand(x.command())
	}
	group.AddCommand((&scheduleUpdate{app: a}).command())
	return asGroup(group)
}

// scheduleUpdate sets the expression or the zone of a schedule.
type scheduleUpdate struct {
	app *app
	confirmation
	expression, zone string
}

func (u *scheduleUpdate) command() *cobra.Command {
	c := u.confirmed(oneSchedule(u.app, &cobra.Command{
		Use: "update SCHEDULE", Short: "Set the expression or the zone of a schedule",
		Long: `Set the expression or the zone of a schedule. SCHEDULE is its id or its name. Without --yes the command shows the next
fires. A program that writes the schedule at its start overwrites the change.`,
		Example: `  asyncmonolith schedules update nightly-report --expression "0 4 * * *" --yes --reason "after the import"`,
	}, u.run))
	c.Flags().StringVar(&u.expression, "expression", "", "new expression, such as \"0 4 * * *\"")
	c.Flags().StringVar(&u.zone, "zone", "", "new zone, such as Europe/Vienna")
	return c
}

func (u *scheduleUpdate) run(ctx context.Context, session *operator.Session, s operator.Schedule) error {
	if u.expression == "" && u.zone == "" {
		return usage(errors.New("--expression or --zone is missing"))
	}
	expression, zone := cmp.Or(u.expression, s.Expression), cmp.Or(u.zone, s.Zone)
	fires, wrong := operator.NextFires(expression, zone)
	if wrong != "" {
		return usage(errors.New(wrong))
	}
	named := fmt.Sprintf("schedule %d (%s)", s.ID, cmp.Or(s.Name, s.PayloadType))
	if !u.yes && !u.app.json {
		err := u.app.say("%s fires at %s in %s. It would fire at %s in %s:", named, s.Expression, s.Zone, expression, zone)
		if err == nil {
			err = nextFires().write(u.app.output, fires, nil)
		}
		return errors.Join(err, errNotConfirmed)
	}
	do := func() error { return session.Schedules().Update(ctx, u.reason, s.ID, expression, zone) }
	done := map[string]any{"schedule": s.ID, "done": "update", "expression": expression, "zone": zone, "next": fires}
	return u.change(u.app.output, fmt.Sprintf("have %s fire at %s in %s", named, expression, zone), do, done,
		fmt.Sprintf("The %s fires at %s in %s.", named, expression, zone))
}

// nextFires lists fires in UTC and in their zone.
func nextFires() list[time.Time] {
	return list[time.Time]{
		columns: []show.Column{{Title: "NEXT"}, {Title: "IN ITS ZONE"}},
		row:     func(t time.Time) []any { return []any{t, t.Format("2006-01-02 15:04:05 MST")} },
		empty:   "No next fires.",
	}
}

type schedulesList struct {
	app     *app
	filter  schedule.Filter
	page    pageFlags
	content contentFlag
}

func (l *schedulesList) command() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List schedules", Args: checkArgs(noArgs),
		Long:    "List schedules in the order of their creation. --show-payloads adds the text of the last error.",
		Example: "  asyncmonolith schedules list --tag billing",
		RunE:    l.app.onSession(l.run, l.content.config),
	}
	c.Flags().Var(selecting{&l.filter.Name}, "name", "name")
	c.Flags().Var(selecting{&l.filter.Tag}, "tag", "tag")
	_ = c.RegisterFlagCompletionFunc("name", l.app.completeFlag(scheduleNames))
	l.page.add(c)
	return l.content.add(c)
}

func (l *schedulesList) run(ctx context.Context, session *operator.Session, _ []string) error {
	found, next, err := session.Schedules().List(ctx, l.filter, l.page.Page)
	if err != nil {
		return err
	}
	return schedules().write(l.app.output, found, next)
}

func schedules() list[operator.Schedule] {
	return list[operator.Schedule]{
		columns: []show.Column{{Title: "ID", Kind: show.Number}, {Title: "NAME"}, {Title: "NEXT", Kind: show.Whole},
			{Title: "LAST", Kind: show.Whole, Gives: 4}, {Title: "EXPRESSION", Kind: show.Whole, Gives: 5},
			{Title: "ZONE", Gives: 3}, {Title: "TAG", Gives: 1}, {Title: "PAYLOAD TYPE", Gives: 2}},
		row: func(s operator.Schedule) []any {
			next := show.Value(s.NextFire)
			if s.Paused {
				next = "paused"
			}
			return []any{s.ID, s.Name, next, s.LastFire, s.Expression, s.Zone, s.Tag, s.PayloadType}
		},
		below: func(s operator.Schedule) []string { return []string{s.LastError} },
		empty: "There are no schedules.",
	}
}

type scheduleNext struct{ app *app }

func (n *scheduleNext) command() *cobra.Command {
	return oneSchedule(n.app, &cobra.Command{
		Use: "next SCHEDULE", Short: "Show the next and the last fires of a schedule",
		Long:    "Show the next five fires of a schedule, in its time zone and in UTC, and the last ten.",
		Example: "  asyncmonolith schedules next nightly-report",
	}, n.run)
}

func (n *scheduleNext) run(_ context.Context, _ *operator.Session, s operator.Schedule) error {
	out := n.app.output
	if out.json {
		return out.line(s)
	}
	if s.Paused {
		if err := out.say("The schedule is paused."); err != nil {
			return err
		}
	}
	err := nextFires().write(out, s.Next, nil)
	if err != nil || len(s.Recent) == 0 {
		return err
	}
	out.blankLine()
	return list[schedule.Fire]{
		columns: []show.Column{{Title: "DUE"}, {Title: "FIRED"}, {Title: "MESSAGES", Kind: show.Number}},
		row:     func(f schedule.Fire) []any { return []any{f.Due, f.FiredAt, f.Messages} },
		below:   func(f schedule.Fire) []string { return []string{f.Error} },
	}.write(out, s.Recent, nil)
}

// scheduleChange is a command that changes one schedule: run, pause, resume or delete.
type scheduleChange struct {
	app *app
	confirmation
	name, short string
	would, said string // verbs
	do          func(*operator.Schedules, context.Context, string, int64) error
}

func (x *scheduleChange) command() *cobra.Command {
	return x.confirmed(oneSchedule(x.app, &cobra.Command{
		Use: x.name + " SCHEDULE", Short: x.short,
		Long:    x.short + ". SCHEDULE is its id or its name.",
		Example: fmt.Sprintf("  asyncmonolith schedules %s nightly-report --yes --reason \"as agreed\"", x.name),
	}, x.run))
}

func (x *scheduleChange) run(ctx context.Context, session *operator.Session, s operator.Schedule) error {
	named := fmt.Sprintf("schedule %d (%s, %s)", s.ID, s.PayloadType, s.Expression)
	if s.Name != "" {
		named = fmt.Sprintf("schedule %d (%q, %s)", s.ID, s.Name, s.Expression)
	}
	do := func() error { return x.do(session.Schedules(), ctx, x.reason, s.ID) }
	return x.change(x.app.output, x.would+" "+named, do, map[string]any{"schedule": s.ID, "done": x.name}, "The "+named+" "+x.said+".")
}

// oneSchedule makes c take the name or the id of a schedule, and calls run with the schedule.
func oneSchedule(a *app, c *cobra.Command, run func(context.Context, *operator.Session, operator.Schedule) error) *cobra.Command {
	c.Args = checkArgs(exactlyOne("schedule", "schedules list"))
	c.ValidArgsFunction = a.completeArg(scheduleNames)
	c.RunE = a.onSession(func(ctx context.Context, session *operator.Session, args []string) error {
		s, err := findSchedule(ctx, session, args[0])
		if err != nil {
			return err
		}
		return run(ctx, session, s)
	})
	return c
}

// findSchedule looks for a name first, since a name can look like an id.
func findSchedule(ctx context.Context, session *operator.Session, name string) (operator.Schedule, error) {
	named, _, err := session.Schedules().List(ctx, schedule.Filter{Name: name}, admin.Page{Size: 1})
	if err != nil {
		return operator.Schedule{}, err
	}
	if len(named) > 0 {
		return session.Schedules().Get(ctx, named[0].ID)
	}
	id, err := strconv.ParseInt(name, 10, 64)
	if err == nil {
		return session.Schedules().Get(ctx, id)
	}
	names, err := scheduleNames(ctx, session)
	if len(names) == 0 {
		return operator.Schedule{}, errors.Join(err, fmt.Errorf("schedule %q: %w: there are no schedules", name, errNotFound))
	}
	text := suggestion(name, names, quotedName, "asyncmonolith schedules list")
	return operator.Schedule{}, fmt.Errorf("schedule %q: %w%s", name, errNotFound, text)
}

func scheduleNames(ctx context.Context, session *operator.Session) (names []string, err error) {
	found, _, err := session.Schedules().List(ctx, schedule.Filter{}, admin.Page{Size: mostListed})
	for _, s := range found {
		names = append(names, s.Name)
	}
	return names, err
}
