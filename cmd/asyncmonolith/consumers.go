package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func consumersGroup(a *app) *cobra.Command {
	return asGroup(&cobra.Command{
		Use:   "consumers",
		Short: "List, pause and resume consumers",
		Long: `List consumers with their pending messages. Pause and resume them in all processes.

A paused consumer's messages are kept but not claimed until it is resumed.`,
		Example: `  asyncmonolith consumers list
  asyncmonolith consumers pause mail --yes --reason "the provider is down"
  asyncmonolith consumers resume mail --yes --reason "it is back"`,
	},
		(&consumersList{app: a}).command(), schemaCommand(a), pauseCommand(a), resumeCommand(a), probeCommand(a))
}

type consumersList struct{ app *app }

func (l *consumersList) command() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List consumers, their messages and their pauses", Args: checkArgs(noArgs),
		Long: "List consumers that have messages or are paused: their ready, delayed, leased and poisoned messages, and the age\n" +
			"of the oldest. Counts stop at 10,000.",
		Example: "  asyncmonolith consumers list --json",
		RunE:    l.app.onSession(l.run),
	}
}

func (l *consumersList) run(ctx context.Context, session *operator.Session, _ []string) error {
	o, err := session.Overview(ctx)
	if err != nil {
		return err
	}
	if err := queuesSeen(o); err != nil {
		return err
	}
	noteUnseen(l.app.output, o)
	return queues(o.At).write(l.app.output, o.Queues, nil)
}

// queuesSeen returns an error if the overview has no queues because they could not be read.
func queuesSeen(o operator.Overview) error {
	for _, u := range o.Unseen {
		if slices.Contains(u.Parts, "queues") && u.From.IsZero() {
			return fmt.Errorf("%w: %s", ops.ErrBusy, u)
		}
	}
	return nil
}

// queues lists consumers, with ages as of now.
func queues(now time.Time) list[admin.Queue] {
	return list[admin.Queue]{
		columns: []show.Column{{Title: "CONSUMER"}, {Title: "READY", Kind: show.Number}, {Title: "DELAYED", Kind: show.Number},
			{Title: "LEASED", Kind: show.Number}, {Title: "POISONED", Kind: show.Number}, {Title: "OLDEST", Kind: show.Number}},
		row: func(q admin.Queue) []any {
			return []any{q.Consumer, count(q.Ready), count(q.Delayed), count(q.Leased), count(q.Poisoned), q.OldestReady}
		},
		below: func(q admin.Queue) []string { return stopsOf(q, now) },
		empty: "No consumer has messages.",
	}
}

// stopsOf says why messages of a consumer do not start.
func stopsOf(q admin.Queue, now time.Time) (texts []string) {
	for _, stop := range q.Stops {
		texts = append(texts, operator.Stop(stop, now))
	}
	return texts
}

// consumerChange is a command that changes one consumer: pause, resume or probe.
type consumerChange struct {
	app *app
	confirmation
	would, said  string // formats with the name
	done         string // the JSON key of the name
	otherwise    string // advice if the consumer is unknown; may be empty
	allowUnknown bool
	do           func(*operator.Consumers, context.Context, string, string) error
}

func (x *consumerChange) command(c *cobra.Command) *cobra.Command {
	c.Args = checkArgs(exactlyOne("consumer", "consumers list"))
	c.ValidArgsFunction = x.app.completeArg(consumerNames)
	c.RunE = x.app.onSession(x.run)
	return x.confirmed(c)
}

func (x *consumerChange) run(ctx context.Context, session *operator.Session, args []string) error {
	name := args[0]
	if !x.allowUnknown {
		if err := checkKnown(ctx, session, name, cmp.Or(x.otherwise, "see asyncmonolith consumers list")); err != nil {
			return err
		}
	}
	do := func() error { return x.do(session.Consumers(), ctx, name, x.reason) }
	return x.change(x.app.output, fmt.Sprintf(x.would, name), do, map[string]string{x.done: name}, fmt.Sprintf(x.said, name))
}

func pauseCommand(a *app) *cobra.Command {
	x := &consumerChange{
		app: a, would: "pause consumer %q in all processes", said: "Consumer %q is paused.", done: "paused", do: (*operator.Consumers).Pause,
		otherwise: "--allow-unknown-consumer pauses an unknown name",
	}
	c := x.command(&cobra.Command{
		Use: "pause NAME", Short: "Pause a consumer in all processes",
		Long: `Pause a consumer in all processes. Its messages are kept but not claimed until it is resumed. After about a
second none starts. Operators see the reason.`,
		Example: `  asyncmonolith consumers pause mail --yes --reason "the provider is down"`,
	})
	c.Flags().BoolVar(&x.allowUnknown, "allow-unknown-consumer", false, "allow a name without messages and without a live process")
	return c
}

func resumeCommand(a *app) *cobra.Command {
	x := &consumerChange{
		app: a, would: "resume consumer %q", said: "Consumer %q is resumed.", done: "resumed", do: (*operator.Consumers).Resume,
	}
	return x.command(&cobra.Command{
		Use: "resume NAME", Short: "Resume a paused consumer",
		Long:    "Resume a paused consumer. Its due messages start.",
		Example: `  asyncmonolith consumers resume mail --yes --reason "it is back"`,
	})
}

func probeCommand(a *app) *cobra.Command {
	x := &consumerChange{
		app: a, would: "run one message of consumer %q although its breaker is open",
		said: "Consumer %q tries one message within about a second. The circuit stays open until a message succeeds: see asyncmonolith status.",
		done: "probed", do: (*operator.Consumers).Probe,
	}
	return x.command(&cobra.Command{
		Use: "probe NAME", Short: "Try one message of a consumer with an open circuit breaker",
		Long: `Run one message of a consumer with an open circuit breaker now, before the cooldown ends. If it succeeds, the breaker
closes and the other messages run. If it fails, the cooldown starts again, doubled as after any failed probe.`,
		Example: `  asyncmonolith consumers probe charge-card --yes --reason "the provider is back"`,
	})
}

// consumersOf returns the consumers that have messages, are paused, or are registered in a live process.
func consumersOf(o operator.Overview) (names []string) {
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

func consumerNames(ctx context.Context, session *operator.Session) ([]string, error) {
	o, err := session.Overview(ctx)
	return consumersOf(o), err
}

// checkKnown returns an error if the consumer is unknown, since a mistyped name could be paused, too. The error ends in a similar
// name, or in the advice otherwise.
func checkKnown(ctx context.Context, session *operator.Session, name, otherwise string) error {
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
	if near := similar(name, names); near != "" {
		says = fmt.Sprintf("did you mean %q?", near)
	}
	return fmt.Errorf("consumer %q: %w: %s", name, errNotFound, says)
}

// checkSpelling returns a usage error if nothing was found and the consumer is unknown, but its name is close to another's.
func checkSpelling(ctx context.Context, session *operator.Session, consumer string, found int) error {
	if consumer == "" || found > 0 {
		return nil
	}
	o, err := session.Overview(ctx)
	if err != nil {
		return nil // the caller reports that nothing was found
	}
	names := consumersOf(o)
	name := nearest(consumer, names)
	if !slices.Contains(names, consumer) && near(consumer, name) {
		return usage(fmt.Errorf("--consumer %q is unknown: did you mean %q?", consumer, name))
	}
	return nil
}
