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
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func (a *app) projectionsCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "projections",
		Short: "List projections of the event log, and resume or rebuild them",
		Long: `List projections of the event log and how far they have come, resume those that have halted, show and retry
events that were parked, rebuild and promote. What takes the application's code is an operation, which a
process with that code carries out. There is no event log on MariaDB.`,
		Example: `  asyncmonolith projections list
  asyncmonolith projections resume totals --yes --reason "fixed in 1.4.2"`,
	}
	root.AddCommand(a.listProjectionsCommand(), a.parkedCommand(), a.resumeProjectionCommand(),
		a.projectionCommand(ops.RetryParked, "retry", "Apply the events again that were parked"),
		a.projectionCommand(ops.Rebuild, "rebuild", "Empty a projection's tables and read the log from the beginning"),
		a.projectionCommand(ops.Promote, "promote", "Have a version of a projection be the one to read"))
	return asGroup(root)
}

func (a *app) listProjectionsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List projections, and how far they have come", Args: takes(nothing),
		Long:    "List the shards of all projections, and how far each has come. With --show-payloads there is the text of the last error.",
		Example: "  asyncmonolith projections list",
		RunE: func(c *cobra.Command, _ []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			found, err := session.Projections().List(c.Context())
			if err != nil {
				return err
			}
			return list[projection.State]{
				columns: []show.Column{{Title: "PROJECTION"}, {Title: "VERSION", Kind: show.Number}, {Title: "SHARD", Kind: show.Number}, {Title: "STATUS"}, {Title: "POSITION", Kind: show.Number}, {Title: "BEHIND", Kind: show.Number}, {Title: "ATTEMPTS", Kind: show.Number, Gives: 2}, {Title: "MOVED", Kind: show.Whole, Gives: 1}},
				row: func(s projection.State) []any {
					return []any{s.Name, activeVersion(s), shardOf(s), s.Status, s.Position, max(s.Head-s.Position, 0), count(int64(s.Attempts)), s.MovedAt}
				},
				below: func(s projection.State) []string { return []string{s.LastError} },
				empty: "There are no projections.",
			}.write(a, found, nil)
		},
	}
	a.contentFlag(c)
	return c
}

func (a *app) parkedCommand() *cobra.Command {
	version, most := 0, 0
	after := int64(0)
	c := &cobra.Command{
		Use: "parked PROJECTION", Short: "List events that a projection has parked", Args: takes(one("projection", "projections list")), ValidArgsFunction: a.completeProjections,
		Long:    "List events that a projection has parked, in the order of their positions. With --show-payloads there is the reason.",
		Example: "  asyncmonolith projections parked totals --show-payloads",
		RunE: func(c *cobra.Command, args []string) error {
			if err := checkPage(admin.Page{Size: most}); err != nil {
				return err
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			v, err := versionOf(c.Context(), session, args[0], version)
			if err != nil {
				return err
			}
			found, err := session.Projections().Parked(c.Context(), args[0], v, after, most)
			if err != nil {
				return err
			}
			return list[projection.Parked]{
				columns: []show.Column{{Title: "POSITION", Kind: show.Number}, {Title: "PARKED", Kind: show.Whole}, {Title: "STREAM"}},
				row:     func(p projection.Parked) []any { return []any{p.Position, p.ParkedAt, p.Stream} },
				below:   func(p projection.Parked) []string { return []string{p.Reason} },
				empty:   "No event is parked.",
			}.write(a, found, nil)
		},
	}
	versionFlag(c, &version)
	c.Flags().Int64Var(&after, "after", 0, "only those behind a position")
	c.Flags().IntVar(&most, "limit", 50, "most rows, up to 1000")
	a.contentFlag(c)
	return c
}

func (a *app) resumeProjectionCommand() *cobra.Command {
	version := 0
	c := a.changing(&cobra.Command{
		Use: "resume PROJECTION", Short: "Have the halted shards of a projection try again", Args: takes(one("projection", "projections list")), ValidArgsFunction: a.completeProjections,
		Long:    "Have the halted shards of a version of a projection try again, from where they are.",
		Example: `  asyncmonolith projections resume totals --yes --reason "fixed in 1.4.2"`,
		RunE: func(c *cobra.Command, args []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			v, err := versionOf(c.Context(), session, args[0], version)
			if err != nil {
				return err
			}
			return a.change(session, fmt.Sprintf("resume projection %q, version %d", args[0], v), func(s *ops.Session) error {
				_, err := s.Projections().Resume(c.Context(), a.reason, args[0], v)
				return err
			}, map[string]any{"resumed": args[0], "version": v}, fmt.Sprintf("Projection %q, version %d, goes on.", args[0], v))
		},
	})
	versionFlag(c, &version)
	return c
}

// projectionCommand is an operation on a projection, for a process with its code.
func (a *app) projectionCommand(action ops.Action, name, short string) *cobra.Command {
	version := 0
	b := &bulk{app: a, action: action, done: name}
	c := &cobra.Command{
		Use: name + " PROJECTION", Short: short, Args: takes(one("projection", "projections list")), ValidArgsFunction: a.completeProjections,
		Long:    short + ". It is an operation, which a process with the application's code carries out.",
		Example: fmt.Sprintf("  asyncmonolith projections %s totals --yes --reason \"as agreed\"", name),
		RunE: func(c *cobra.Command, args []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			v, err := versionOf(c.Context(), session, args[0], version)
			if err != nil {
				return err
			}
			if err := a.unconfirmed(); err != nil {
				return a.change(session, fmt.Sprintf("%s projection %q, version %d", action, args[0], v), nil, nil, "")
			}
			return b.matching(c.Context(), ops.Target{Projection: args[0], Version: v})
		},
	}
	versionFlag(c, &version)
	b.operationFlags(c, "show how far it is, until it is over")
	return a.changing(c)
}

// shardOf is the number of a shard, where there are several.
func shardOf(s projection.State) string {
	if s.Shards == 1 {
		return ""
	}
	return fmt.Sprintf("%d/%d", s.Shard, s.Shards)
}

// activeVersion is the version of a shard, and whether it is one that is not read yet, or not any more.
func activeVersion(s projection.State) string {
	if s.Active {
		return strconv.Itoa(s.Version)
	}
	return strconv.Itoa(s.Version) + " (inactive)"
}

func versionFlag(c *cobra.Command, version *int) {
	c.Flags().IntVar(version, "version", 0, "of which version, where there are several")
}

// versionOf is the version that is meant of a projection.
func versionOf(ctx context.Context, session *ops.Session, name string, version int) (int, error) {
	states, err := session.Projections().List(ctx)
	if err != nil {
		return 0, err
	}
	var names []string
	var versions []int
	for _, s := range states {
		if names = append(names, s.Name); s.Name == name {
			versions = append(versions, s.Version)
		}
	}
	slices.Sort(versions)
	versions = slices.Compact(versions)
	switch {
	case len(names) == 0:
		return 0, fmt.Errorf("projection %q: %w: there are no projections", name, errNotFound)
	case len(versions) == 0:
		return 0, fmt.Errorf("projection %q: %w%s", name, errNotFound, meant(name, names, quotedName, "asyncmonolith projections list"))
	case version == 0 && len(versions) > 1:
		return 0, usage(fmt.Errorf("projection %q has versions %v: say --version", name, versions))
	case version == 0:
		return versions[0], nil
	case !slices.Contains(versions, version):
		return 0, fmt.Errorf("projection %q, version %d: %w: there are %v", name, version, errNotFound, versions)
	default:
		return version, nil
	}
}

// completeProjections completes names of projections.
func (a *app) completeProjections(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completions(func(ctx context.Context, session *ops.Session) (names []string, err error) {
		states, err := session.Projections().List(ctx)
		for _, s := range states {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		return slices.Compact(names), err
	})
}
