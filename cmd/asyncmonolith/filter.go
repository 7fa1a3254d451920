package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// completionTime is how long a shell waits for names.
const completionTime = time.Second

// mostListed is the most rows of one page, as package outbox has it.
const mostListed = 1000

// pageFlags are those of listings.
func pageFlags(c *cobra.Command, page *admin.Page) {
	c.Flags().IntVar(&page.Size, "limit", 50, "most rows, up to 1000")
	c.Flags().StringVar(&page.After, "after", "", "where to go on: what the listing before ended with")
}

func checkPage(page admin.Page) error {
	if page.Size < 1 || page.Size > mostListed {
		return usage(fmt.Errorf("--limit %d: 1 to %d are allowed", page.Size, mostListed))
	}
	return nil
}

// messageID is a flag with the id of a payload.
type messageID struct{ uuid.UUID }

// String implements pflag.Value.
func (m *messageID) String() string {
	if m.UUID == uuid.Nil {
		return ""
	}
	return m.UUID.String()
}

// Type implements pflag.Value.
func (*messageID) Type() string { return "UUID" }

// Set implements pflag.Value.
func (m *messageID) Set(text string) (err error) {
	if m.UUID, err = uuid.Parse(text); err != nil {
		return errors.New("a UUID is allowed, such as 0199f1a2-7c3d-7abc-8def-0123456789ab")
	}
	return nil
}

// poisonFilter are flags that select poisoned messages.
type poisonFilter struct {
	app           *app // has the text of errors that is looked for
	filter        poison.Filter
	message       messageID
	after, before instant
}

func (f *poisonFilter) flags(a *app, c *cobra.Command) {
	f.app = a
	flags := c.Flags()
	flags.StringVar(&f.filter.Consumer, "consumer", "", "those of a consumer")
	flags.StringVar(&f.filter.PayloadType, "payload-type", "", "those of a payload type")
	flags.StringVar(&f.filter.Fingerprint, "fingerprint", "", "those of a group, see poisoned groups")
	flags.StringVar(&f.filter.OrderingKey, "key", "", "those of a key")
	flags.StringVar(&a.error, "error", "", "those with a text in their reason or errors")
	flags.Var(&f.message, "message-id", "those of a payload")
	flags.Var(&f.after, "poisoned-after", "those poisoned after a time, in UTC")
	flags.Var(&f.before, "poisoned-before", "those poisoned before a time, in UTC")
	_ = c.RegisterFlagCompletionFunc("consumer", a.consumerFlag)
	_ = c.RegisterFlagCompletionFunc("fingerprint", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return a.completions(func(ctx context.Context, session *ops.Session) (names []string, err error) {
			groups, _, err := session.Poisoned().Groups(ctx, f.filter.Consumer)
			for _, g := range groups {
				names = append(names, g.Fingerprint)
			}
			return names, err
		})
	})
}

// consumerFlag completes names of consumers behind a flag.
func (a *app) consumerFlag(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeConsumers(c, nil, typed)
}

// mistyped is a mistake of usage if the consumer that was asked for is not known, and its name is nearly
// another's. It is asked where nothing was found.
func (a *app) mistyped(ctx context.Context, session *ops.Session, consumer string) error {
	if consumer == "" {
		return nil
	}
	o, err := session.Overview(ctx)
	if err != nil {
		return nil // nothing was found, which is said
	}
	names := consumersOf(o)
	if name := nearest(consumer, names); !slices.Contains(names, consumer) && near(consumer, name) {
		return usage(fmt.Errorf("--consumer %q: it is not known: did you mean %q?", consumer, name))
	}
	return nil
}

// get is the filter, and whether it selects anything but all.
func (f *poisonFilter) get() (filter poison.Filter, narrow bool) {
	filter = f.filter
	filter.Error = f.app.error
	filter.MessageID, filter.PoisonedAfter, filter.PoisonedBefore = f.message.UUID, f.after.Time, f.before.Time
	narrow = filter.Consumer != "" || filter.PayloadType != "" || filter.Fingerprint != "" || filter.OrderingKey != "" || filter.Error != "" || filter.MessageID != uuid.Nil || !filter.PoisonedAfter.IsZero() || !filter.PoisonedBefore.IsZero()
	return filter, narrow
}

func (f *poisonFilter) target() (ops.Target, bool) {
	filter, narrow := f.get()
	return ops.Target{Poisoned: &filter}, narrow
}

// pendingFilter are flags that select pending messages.
type pendingFilter struct {
	filter  admin.Filter
	message messageID
	state   string
}

func (f *pendingFilter) flags(a *app, c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.filter.Consumer, "consumer", "", "those of a consumer")
	flags.StringVar(&f.filter.PayloadType, "payload-type", "", "those of a payload type")
	flags.StringVar(&f.filter.OrderingKey, "key", "", "those of a key, in order")
	flags.StringVar(&f.filter.InsertID, "insert-id", "", "the one with an insert id, of each consumer")
	flags.Var(&f.message, "message-id", "those of a payload, of each consumer")
	states := []string{string(admin.Ready), string(admin.Delayed), string(admin.Leased)}
	flags.Var(choice{&f.state, states}, "state", strings.Join(states, ", "))
	flags.BoolVar(&f.filter.Crashed, "crashed", false, "those whose last process was lost")
	flags.BoolVar(&f.filter.Retrying, "retrying", false, "those that have failed, and run again")
	flags.DurationVar(&f.filter.OlderThan, "older-than", 0, "those produced at least so long ago, such as 90m")
	_ = c.RegisterFlagCompletionFunc("consumer", a.consumerFlag)
	_ = c.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
}

// get is the filter, and whether it selects anything but all.
func (f *pendingFilter) get() (filter admin.Filter, narrow bool) {
	filter = f.filter
	filter.MessageID, filter.State = f.message.UUID, admin.State(f.state)
	return filter, filter != admin.Filter{}
}

func (f *pendingFilter) target() (ops.Target, bool) {
	filter, narrow := f.get()
	return ops.Target{Pending: &filter}, narrow
}
