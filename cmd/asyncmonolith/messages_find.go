package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

type messagesFind struct {
	app     *app
	search  admin.Search
	message messageID
	header  string // NAME=VALUE
	page    pageFlags
}

func (f *messagesFind) command() *cobra.Command {
	c := &cobra.Command{
		Use: "find", Short: "Find pending messages by message id, trace or header", Args: checkArgs(noArgs),
		Long: `Find pending messages by message id, trace or header. No index has these, so the command reads all pending messages
and shows its progress. With a message id, it starts with those produced at that time.`,
		Example: `  asyncmonolith messages find --message-id 0199f1a2-7c3d-7abc-8def-0123456789ab
  asyncmonolith messages find --header tenant=acme --limit 10`,
		RunE: f.app.onSession(f.run, f.config),
	}
	c.Flags().Var(&f.message, "message-id", "message id")
	c.Flags().Var(selecting{&f.search.TraceID}, "trace-id", "id of the trace that produced the message: 32 hexadecimal digits")
	c.Flags().Var(selecting{&f.header}, "header", "header, as NAME=VALUE")
	f.page.addLimit(c)
	c.PreRunE = func(*cobra.Command, []string) error { return f.check() }
	return c
}

// check parses and checks the flags.
func (f *messagesFind) check() error {
	f.search.MessageID = f.message.UUID
	if f.header != "" {
		var ok bool
		f.search.Header, f.search.Value, ok = strings.Cut(f.header, "=")
		if !ok {
			return usage(fmt.Errorf("--header %q: NAME=VALUE is allowed", f.header))
		}
	}
	if f.search.MessageID == uuid.Nil && f.search.TraceID == "" && f.header == "" {
		return usage(errors.New("no search is given: use --message-id, --trace-id or --header"))
	}
	return f.page.check()
}

// config is a setting of the session. It allows the search for --header.
func (f *messagesFind) config(c *ops.Config) {
	if f.header != "" {
		c.Redact = searched("", map[string]string{f.search.Header: f.search.Value})
	}
}

func (f *messagesFind) run(ctx context.Context, session *operator.Session, _ []string) error {
	found, more, err := f.find(ctx, session)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("%w: no pending message matches", errNotFound)
	}
	most := min(f.page.Size, len(found))
	err = pending("").write(f.app.output, found[:most], nil)
	return errors.Join(err, noteMore(f.app.output, more || len(found) > most, "More messages may match: raise --limit."))
}

// find searches until it has --limit messages, or reaches the end.
func (f *messagesFind) find(ctx context.Context, session *operator.Session) (found []admin.Message, more bool, err error) {
	p := f.app.progress()
	defer p.end()
	for cursor := (admin.Cursor{}); ; {
		part, next, err := session.Messages().Find(ctx, f.search, cursor)
		if err != nil {
			return nil, false, err
		}
		found = append(found, part...)
		if next == nil || len(found) >= f.page.Size {
			return found, next != nil, nil
		}
		cursor = *next
		p.show(fmt.Sprintf("read %d messages, found %d", cursor.Examined, len(found)))
	}
}
