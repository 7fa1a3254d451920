package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func projectionsGroup(a *app) *cobra.Command {
	return asGroup(&cobra.Command{
		Use:   "projections",
		Short: "List projections of the event log, and resume or rebuild them",
		Long: `List projections of the event log and their progress. Resume halted ones, show and retry parked events, rebuild and
promote. retry, rebuild and promote are operations, which a process with the application's code runs. MariaDB has no
event log.`,
		Example: `  asyncmonolith projections list
  asyncmonolith projections resume totals --yes --reason "fixed in 1.4.2"`,
	},
		(&projectionsList{app: a}).command(), (&parkedEvents{app: a}).command(), (&projectionResume{app: a}).command(),
		newProjectionOperation(a, ops.RetryParked, "retry").command("Apply parked events again"),
		newProjectionOperation(a, ops.Rebuild, "rebuild").command("Empty the tables of a projection and apply the log from the beginning"),
		newProjectionOperation(a, ops.Promote, "promote").command("Make a version of a projection the active one"))
}

type projectionsList struct {
	app     *app
	content contentFlag
}

func (l *projectionsList) command() *cobra.Command {
	return l.content.add(&cobra.Command{
		Use: "list", Short: "List projections and their progress", Args: checkArgs(noArgs),
		Long:    "List the shards of all projections with their progress. --show-payloads adds the text of the last error.",
		Example: "  asyncmonolith projections list",
		RunE:    l.app.onSession(l.run, l.content.config),
	})
}

func (l *projectionsList) run(ctx context.Context, session *operator.Session, _ []string) error {
	found, err := session.Projections().List(ctx)
	if err != nil {
		return err
	}
	return list[operator.ProjectionState]{
		columns: []show.Column{{Title: "PROJECTION"}, {Title: "VERSION", Kind: show.Number}, {Title: "SHARD", Kind: show.Number},
			{Title: "STATUS"}, {Title: "POSITION", Kind: show.Number}, {Title: "BEHIND", Kind: show.Number},
			{Title: "ATTEMPTS", Kind: show.Number, Gives: 2}, {Title: "MOVED", Kind: show.Whole, Gives: 1}},
		row: func(s operator.ProjectionState) []any {
			return []any{s.Name, activeVersion(s), shardOf(s), s.Status, s.Position, max(s.Head-s.Position, 0),
				count(int64(s.Attempts)), s.MovedAt}
		},
		below: func(s operator.ProjectionState) []string { return []string{s.LastError} },
		empty: "There are no projections.",
	}.write(l.app.output, found, nil)
}

// shardOf shows the number of a shard, or "" if there is only one.
func shardOf(s operator.ProjectionState) string {
	if s.Shards == 1 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Shard, s.Shards)
}

// activeVersion shows the version, and whether it is inactive.
func activeVersion(s operator.ProjectionState) string {
	if s.Active {
		return strconv.Itoa(s.Version)
	}
	return strconv.Itoa(s.Version) + " (inactive)"
}

type parkedEvents struct {
	app     *app
	version versionFlag
	page    pageFlags
	after   int64
	content contentFlag
}

func (p *parkedEvents) command() *cobra.Command {
	c := p.version.command(p.app, &cobra.Command{
		Use: "parked PROJECTION", Short: "List events that a projection has parked",
		Long:    "List events that a projection has parked, in the order of their positions. --show-payloads adds the reason.",
		Example: "  asyncmonolith projections parked totals --show-payloads",
	}, p.run, p.content.config)
	c.Flags().Int64Var(&p.after, "after", 0, "events after this position")
	p.page.addLimit(c)
	return p.content.add(c)
}

func (p *parkedEvents) run(ctx context.Context, session *operator.Session, name string, version int) error {
	found, err := session.Projections().Parked(ctx, name, version, p.after, p.page.Size)
	if err != nil {
		return err
	}
	var next *admin.Page
	if len(found) == p.page.Size {
		last := found[len(found)-1].Position
		behind, err := session.Projections().Parked(ctx, name, version, last, 1)
		if err != nil {
			return err
		}
		if len(behind) > 0 {
			next = &admin.Page{After: strconv.FormatInt(last, 10)}
		}
	}
	return list[projection.Parked]{
		columns: []show.Column{{Title: "POSITION", Kind: show.Number}, {Title: "PARKED", Kind: show.Whole}, {Title: "STREAM"}},
		row:     func(p projection.Parked) []any { return []any{p.Position, p.ParkedAt, p.Stream} },
		below:   func(p projection.Parked) []string { return []string{p.Reason} },
		empty:   "No event is parked.",
	}.write(p.app.output, found, next)
}

type projectionResume struct {
	app *app
	confirmation
	version versionFlag
}

func (r *projectionResume) command() *cobra.Command {
	return r.confirmed(r.version.command(r.app, &cobra.Command{
		Use: "resume PROJECTION", Short: "Resume the halted shards of a projection",
		Long:    "Resume the halted shards of a version of a projection, at the event that failed.",
		Example: `  asyncmonolith projections resume totals --yes --reason "fixed in 1.4.2"`,
	}, r.run))
}

func (r *projectionResume) run(ctx context.Context, session *operator.Session, name string, version int) error {
	do := func() error {
		_, err := session.Projections().Resume(ctx, r.reason, name, version)
		return err
	}
	return r.change(r.app.output, fmt.Sprintf("resume projection %q, version %d", name, version), do,
		map[string]any{"resumed": name, "version": version}, fmt.Sprintf("Projection %q, version %d, is resumed.", name, version))
}

// projectionOperation is a command that starts an operation on a projection. A process with the projection's code runs it.
type projectionOperation struct {
	operationStart
	version versionFlag
}

func newProjectionOperation(a *app, action ops.Action, name string) *projectionOperation {
	return &projectionOperation{operationStart: operationStart{app: a, action: action, done: name}}
}

func (p *projectionOperation) command(short string) *cobra.Command {
	c := p.version.command(p.app, &cobra.Command{
		Use: p.done + " PROJECTION", Short: short,
		Long:    short + ". A process with the application's code runs this operation.",
		Example: fmt.Sprintf("  asyncmonolith projections %s totals --yes --reason \"as agreed\"", p.done),
	}, p.run, p.config)
	p.add(c, "show the progress until the operation ends")
	return c
}

func (p *projectionOperation) run(ctx context.Context, session *operator.Session, name string, version int) error {
	if !p.yes {
		return p.change(p.app.output, fmt.Sprintf("%s projection %q, version %d", p.action, name, version), nil, nil, "")
	}
	if err := p.checkUndoWindow(); err != nil {
		return err
	}
	return p.start(ctx, session, ops.Target{Projection: name, Version: version})
}

// versionFlag is --version: which version of a projection.
type versionFlag struct{ version int }

// command makes c take the name of a projection, and the flag. It calls run with both.
func (f *versionFlag) command(
	a *app, c *cobra.Command, run func(ctx context.Context, session *operator.Session, name string, version int) error,
	settings ...func(*ops.Config),
) *cobra.Command {
	c.Args = checkArgs(exactlyOne("projection", "projections list"))
	c.ValidArgsFunction = a.completeArg(projectionNames)
	c.RunE = a.onSession(func(ctx context.Context, session *operator.Session, args []string) error {
		version, err := f.find(ctx, session, args[0])
		if err != nil {
			return err
		}
		return run(ctx, session, args[0], version)
	}, settings...)
	c.Flags().IntVar(&f.version, "version", 0, "version, if there are several")
	return c
}

// find returns the version that is given, or else the only one.
func (f *versionFlag) find(ctx context.Context, session *operator.Session, name string) (int, error) {
	version := f.version
	states, err := session.Projections().List(ctx)
	if err != nil {
		return 0, err
	}
	var names []string
	var versions []int
	for _, s := range states {
		names = append(names, s.Name)
		if s.Name == name {
			versions = append(versions, s.Version)
		}
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	switch {
	case len(names) == 0:
		return 0, fmt.Errorf("projection %q: %w: there are no projections", name, errNotFound)
	case len(versions) == 0:
		return 0, fmt.Errorf("projection %q: %w%s", name, errNotFound, suggestion(name, names, quotedName, "asyncmonolith projections list"))
	case version == 0 && len(versions) > 1:
		return 0, usage(fmt.Errorf("projection %q has versions %v: give --version", name, versions))
	case version == 0:
		return versions[0], nil
	case !slices.Contains(versions, version):
		return 0, fmt.Errorf("projection %q, version %d: %w: versions %v exist", name, version, errNotFound, versions)
	default:
		return version, nil
	}
}

func projectionNames(ctx context.Context, session *operator.Session) (names []string, err error) {
	states, err := session.Projections().List(ctx)
	for _, s := range states {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return slices.Compact(names), err
}
