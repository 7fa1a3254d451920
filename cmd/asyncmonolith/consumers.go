package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func (a *app) consumersCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "consumers",
		Short: "List, pause and resume consumers",
		Long: `List consumers with what waits for each, and pause and resume them for all processes.

Messages of a paused consumer are not claimed until it is resumed; they are produced and
kept as ever.`,
		Example: `  asyncmonolith consumers list
  asyncmonolith consumers pause mail --yes --reason "the provider is down"
  asyncmonolith consumers resume mail --yes --reason "it is back"`,
	}
	listing := &cobra.Command{
		Use: "list", Short: "List consumers, what waits for each, and which are paused", Args: takes(nothing),
		Long:    "List the consumers that have messages, or are paused: how many wait, run and are poisoned, and for how long\nthe oldest has been due. Counts stop at 10,000.",
		Example: "  asyncmonolith consumers list --json",
		RunE: func(c *cobra.Command, _ []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			o, err := session.Overview(c.Context())
			if err != nil {
				return err
			}
			if err := queuesSeen(o); err != nil {
				return err
			}
			a.unseen(o)
			return queues().write(a, o.Queues, nil)
		},
	}
	root.AddCommand(listing, a.pauseCommand(), a.resumeCommand(), a.probeCommand())
	return asGroup(root)
}

// queuesSeen is an error where nothing is known of queues.
func queuesSeen(o ops.Overview) error {
	for _, u := range o.Unseen {
		if slices.Contains(u.Parts, "queues") && u.From.IsZero() {
			return fmt.Errorf("%w: %s", ops.ErrBusy, u)
		}
	}
	return nil
}

// queues is how consumers are listed. Counts stop at 10,000.
func queues() list[admin.Queue] {
	return list[admin.Queue]{
		columns: []show.Column{{Title: "CONSUMER"}, {Title: "READY", Kind: show.Number}, {Title: "DELAYED", Kind: show.Number}, {Title: "LEASED", Kind: show.Number}, {Title: "POISONED", Kind: show.Number}, {Title: "OLDEST", Kind: show.Number}},
		row: func(q admin.Queue) []any {
			return []any{q.Consumer, count(q.Ready), count(q.Delayed), count(q.Leased), count(q.Poisoned), q.OldestReady}
		},
		below: func(q admin.Queue) []string { return []string{noteOf(q)} },
		empty: "No consumer has messages.",
	}
}

// noteOf says what there is to know of a consumer beside its numbers.
func noteOf(q admin.Queue) string {
	var parts []string
	if !q.PausedAt.IsZero() {
		text := "paused by " + cmp.Or(q.PausedBy, "a person")
		if q.PauseNote != "" {
			text += ": " + q.PauseNote
		}
		parts = append(parts, text)
	}
	if q.Breaker != nil {
		parts = append(parts, q.Breaker.String())
	}
	if q.BlockedKeys > 0 {
		parts = append(parts, many(int(q.BlockedKeys), "key")+" parked")
	}
	return strings.Join(parts, "; ")
}

// count is a number that stops at 10,000, and nothing of none.
func count(n int64) string {
	switch {
	case n == 0:
		return ""
	case n >= 10_000:
		return "10,000+"
	default:
		return fmt.Sprint(n)
	}
}

func (a *app) pauseCommand() *cobra.Command {
	unknown := false
	c := &cobra.Command{
		Use: "pause NAME", Short: "Keep a consumer's messages from being claimed", Args: takes(one("consumer", "consumers list")), ValidArgsFunction: a.completeConsumers,
		Long: `Keep a consumer's messages from being claimed until it is resumed. What is claimed already still
runs; within about a second nothing more of the consumer starts. The reason is for others to see.`,
		Example: `  asyncmonolith consumers pause mail --yes --reason "the provider is down"`,
		RunE: func(c *cobra.Command, args []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			if !unknown {
				if err := known(c.Context(), session, args[0], "--allow-unknown-consumer pauses a name that is not known yet"); err != nil {
					return err
				}
			}
			return a.change(session, fmt.Sprintf("pause consumer %q in all processes", args[0]), func(s *ops.Session) error {
				return s.Consumers().Pause(c.Context(), args[0], a.reason)
			}, map[string]string{"paused": args[0]}, fmt.Sprintf("Consumer %q is paused.", args[0]))
		},
	}
	c.Flags().BoolVar(&unknown, "allow-unknown-consumer", false, "also a name that has no messages and that no live process takes")
	return a.changing(c)
}

func (a *app) resumeCommand() *cobra.Command {
	return a.changing(&cobra.Command{
		Use: "resume NAME", Short: "Let a paused consumer's messages be claimed again", Args: takes(one("consumer", "consumers list")), ValidArgsFunction: a.completeConsumers,
		Long:    "Let a paused consumer's messages be claimed again. Those that are due run then, as many as there is room for.",
		Example: `  asyncmonolith consumers resume mail --yes --reason "it is back"`,
		RunE: func(c *cobra.Command, args []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			if err := known(c.Context(), session, args[0], "see asyncmonolith consumers list"); err != nil {
				return err
			}
			return a.change(session, fmt.Sprintf("resume consumer %q", args[0]), func(s *ops.Session) error {
				return s.Consumers().Resume(c.Context(), args[0], a.reason)
			}, map[string]string{"resumed": args[0]}, fmt.Sprintf("Consumer %q is resumed.", args[0]))
		},
	})
}

func (a *app) probeCommand() *cobra.Command {
	return a.changing(&cobra.Command{
		Use: "probe NAME", Short: "Have one message of a consumer with an open breaker run now", Args: takes(one("consumer", "consumers list")), ValidArgsFunction: a.completeConsumers,
		Long: `Have one message of a consumer with an open breaker run now, rather than when its cooldown is over. If it is done the
breaker closes, and the others run. Use it when you know that what the consumer needs is back.`,
		Example: `  asyncmonolith consumers probe charge-card --yes --reason "the provider is back"`,
		RunE: func(c *cobra.Command, args []string) error {
			session, err := a.session()
			if err != nil {
				return err
			}
			if err := known(c.Context(), session, args[0], "see asyncmonolith consumers list"); err != nil {
				return err
			}
			return a.change(session, fmt.Sprintf("run one message of consumer %q although its breaker is open", args[0]), func(s *ops.Session) error {
				return s.Consumers().Probe(c.Context(), args[0], a.reason)
			}, map[string]string{"probed": args[0]}, fmt.Sprintf("Consumer %q tries one message within about a second.", args[0]))
		},
	})
}

// consumersOf are the names that the database knows: of messages, pauses and live processes.
func consumersOf(o ops.Overview) (names []string) {
	for _, q := range o.Queues {
		names = append(names, q.Consumer)
	}
	for _, p := range o.Processes {
		for _, c := range p.Consumers {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// known is an error unless the database knows the consumer: a name that is mistyped would be paused, too. It ends with
// what else there is to do.
func known(ctx context.Context, session *ops.Session, name, otherwise string) error {
	o, err := session.Overview(ctx)
	if err != nil {
		return err
	}
	if err := queuesSeen(o); err != nil {
		return err
	}
	names := consumersOf(o)
	if slices.Contains(names, name) {
		return nil
	}
	says := otherwise
	if near := guess(name, names); near != "" {
		says = fmt.Sprintf("did you mean %q?", near)
	}
	return fmt.Errorf("consumer %q: %w: %s", name, errNotFound, says)
}

// completeConsumers completes names of consumers. It is silent about errors.
func (a *app) completeConsumers(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completions(func(ctx context.Context, session *ops.Session) ([]string, error) {
		o, err := session.Overview(ctx)
		return consumersOf(o), err
	})
}

// completions are what the database knows within a second. A name that a shell would not show as it is
// stays out.
func (a *app) completions(find func(context.Context, *ops.Session) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(a.ctx, completionTime)
	defer cancel()
	a.ctx = ctx
	session, err := a.session()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names, err := find(ctx, session)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" || show.Text(name) != name }), cobra.ShellCompDirectiveNoFileComp
}
