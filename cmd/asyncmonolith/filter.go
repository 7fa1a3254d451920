package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// poisonFilter is the flags that select poisoned messages.
type poisonFilter struct {
	filter        poison.Filter
	message       messageID
	after, before instant
}

func (f *poisonFilter) add(a *app, c *cobra.Command) {
	flags := c.Flags()
	flags.Var(selecting{&f.filter.Consumer}, "consumer", "consumer")
	flags.Var(selecting{&f.filter.PayloadType}, "payload-type", "payload type")
	flags.Var(selecting{&f.filter.Fingerprint}, "fingerprint", "failure group, from poisoned groups")
	flags.Var(selecting{&f.filter.OrderingKey}, "key", "ordering key")
	flags.Var(selecting{&f.filter.Error}, "error", "text in the reason or the errors")
	flags.Var(&f.message, "message-id", "message id")
	flags.Var(selecting{&f.filter.TraceID}, "trace-id", "id of the trace that produced the message: 32 hexadecimal digits")
	flags.Var(&f.after, "poisoned-after", "poisoned after a time, in UTC")
	flags.Var(&f.before, "poisoned-before", "poisoned before a time, in UTC")
	_ = c.RegisterFlagCompletionFunc("consumer", a.completeFlag(consumerNames))
	_ = c.RegisterFlagCompletionFunc("fingerprint", a.completeFlag(f.fingerprints))
}

// fingerprints completes fingerprints of the consumer that --consumer names, or of all.
func (f *poisonFilter) fingerprints(ctx context.Context, session *operator.Session) (found []string, err error) {
	groups, _, err := session.Poisoned().Groups(ctx, f.filter.Consumer)
	for _, g := range groups {
		found = append(found, g.Fingerprint)
	}
	return found, err
}

// config is a setting of a session. It allows the search for --error.
func (f *poisonFilter) config(c *ops.Config) {
	if c.Redact == nil && f.filter.Error != "" {
		c.Redact = searched(f.filter.Error, nil)
	}
}

func (f *poisonFilter) get() poison.Filter {
	filter := f.filter
	filter.MessageID, filter.PoisonedAfter, filter.PoisonedBefore = f.message.UUID, f.after.Time, f.before.Time
	return filter
}

func (f *poisonFilter) target() (ops.Target, bool) {
	filter := f.get()
	return ops.Target{Poisoned: &filter}, isSet(filter)
}

// pendingFilter is the flags that select pending messages.
type pendingFilter struct {
	filter  admin.Filter
	message messageID
	state   string
}

func (f *pendingFilter) add(a *app, c *cobra.Command) {
	flags := c.Flags()
	flags.Var(selecting{&f.filter.Consumer}, "consumer", "consumer")
	flags.Var(selecting{&f.filter.PayloadType}, "payload-type", "payload type")
	flags.Var(selecting{&f.filter.OrderingKey}, "key", "ordering key; lists its messages in order")
	flags.Var(selecting{&f.filter.InsertID}, "insert-id", "insert id")
	flags.Var(&f.message, "message-id", "message id, for all consumers")
	states := []string{string(admin.Ready), string(admin.Delayed), string(admin.Leased)}
	flags.Var(choice{&f.state, states}, "state", "state: "+strings.Join(states, ", "))
	flags.BoolVar(&f.filter.Crashed, "crashed", false, "messages whose last process was lost")
	flags.BoolVar(&f.filter.Retrying, "retrying", false, "messages that failed and will run again")
	flags.DurationVar(&f.filter.OlderThan, "older-than", 0, "messages produced at least this long ago, such as 90m")
	_ = c.RegisterFlagCompletionFunc("consumer", a.completeFlag(consumerNames))
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
}

// config sets nothing, since no flag searches contents.
func (*pendingFilter) config(*ops.Config) {}

func (f *pendingFilter) get() admin.Filter {
	filter := f.filter
	filter.MessageID, filter.State = f.message.UUID, admin.State(f.state)
	return filter
}

func (f *pendingFilter) target() (ops.Target, bool) {
	filter := f.get()
	return ops.Target{Pending: &filter}, isSet(filter)
}
