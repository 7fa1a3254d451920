package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

type explainCommand struct{ app *app }

func (e *explainCommand) command() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID...", Short: "Say why messages do not run", Args: checkArgs(atLeastOne("message", "messages list")),
		Long: `Say why messages do not run, or have not yet: as far as the database knows, which knows the live processes and
what they take. Ids are those of pending and of poisoned messages.`,
		Example: "  asyncmonolith explain 4711",
		RunE:    e.app.onIDs(e.run),
	}
}

func (e *explainCommand) run(ctx context.Context, session *operator.Session, ids []int64) error {
	missing := 0
	for _, id := range ids {
		found, err := session.Messages().Explain(ctx, id)
		if errors.Is(err, admin.ErrNotFound) {
			missing++
			e.app.note("message %d: there is none with that id, neither pending nor poisoned", id)
			continue
		}
		if err == nil {
			err = e.write(found)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case missing == len(ids):
		return fmt.Errorf("%w: none of these ids", errNotFound)
	case missing > 0:
		return errPartly
	default:
		return nil
	}
}

func (e *explainCommand) write(found admin.Explanation) error {
	if e.app.json {
		return e.app.line(found)
	}
	m := found.Message
	if err := e.app.say("%d  %s (%s): %s", m.ID, m.Consumer, m.PayloadType, found.Reason); err != nil {
		return err
	}
	return e.app.lines(show.Wrap(show.Text(found.Text), e.app.width, "  ", 0))
}
