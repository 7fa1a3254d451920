package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

func (a *app) findCommand() *cobra.Command {
	var search admin.Search
	var message messageID
	header, most := "", 0
	c := &cobra.Command{
		Use: "find", Short: "Look for pending messages by message id, trace or header", Args: takes(nothing),
		Long: `Look for pending messages by what no index has: the id of the payload, the trace in which it was produced, a
header. It looks at all of them, beginning near the time of the message id, and says how far it is.`,
		Example: `  asyncmonolith messages find --message-id 0199f1a2-7c3d-7abc-8def-0123456789ab
  asyncmonolith messages find --header tenant=acme --limit 10`,
		RunE: func(c *cobra.Command, _ []string) error {
			search.MessageID = message.UUID
			if header != "" {
				var ok bool
				if search.Header, search.Value, ok = strings.Cut(header, "="); !ok {
					return usage(fmt.Errorf("--header %q: NAME=VALUE is allowed", header))
				}
				a.sought = map[string]string{search.Header: search.Value}
			}
			if search.MessageID == uuid.Nil && search.TraceID == "" && header == "" {
				return usage(errors.New("nothing says what to look for: give --message-id, --trace-id or --header"))
			}
			if err := checkPage(admin.Page{Size: most}); err != nil {
				return err
			}
			return a.search(c, search, most)
		},
	}
	c.Flags().Var(&message, "message-id", "the id of the payload")
	c.Flags().StringVar(&search.TraceID, "trace-id", "", "the trace in which it was produced: 32 hexadecimal digits")
	c.Flags().StringVar(&header, "header", "", "a header, as NAME=VALUE")
	c.Flags().IntVar(&most, "limit", 50, "most rows, up to 1000")
	return c
}

// search looks for messages until it has as many as are wanted, or is through.
func (a *app) search(c *cobra.Command, search admin.Search, most int) error {
	session, err := a.session()
	if err != nil {
		return err
	}
	p := a.progress()
	var found []admin.Message
	more := false
	for place := (admin.Cursor{}); ; {
		part, next, err := session.Messages().Find(c.Context(), search, place)
		if err != nil {
			p.end()
			return err
		}
		found = append(found, part...)
		if more = next != nil; !more || len(found) >= most {
			break
		}
		place = *next
		p.show(fmt.Sprintf("looked at %d messages, found %d", place.Examined, len(found)))
	}
	p.end()
	if len(found) == 0 {
		return fmt.Errorf("%w: no pending message has that", errNotFound)
	}
	if more || len(found) > most {
		a.note("There may be more than are listed: --limit says how many are.")
	}
	return pending("").write(a, found[:min(most, len(found))], nil)
}
