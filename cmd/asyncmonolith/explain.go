package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

func (a *app) explainCommand() *cobra.Command {
	return &cobra.Command{
		Use: "explain ID...", Short: "Say why messages do not run", Args: takes(atLeastOne("message", "messages list")),
		Long: `Say why messages do not run, or have not yet: as far as the database knows, which knows the live processes and
what they take. Ids are those of pending and of poisoned messages.`,
		Example: "  asyncmonolith explain 4711",
		RunE: func(c *cobra.Command, args []string) error {
			named, err := ids(args)
			if err != nil {
				return err
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			missing := 0
			for _, id := range named {
				e, err := session.Messages().Explain(c.Context(), id)
				switch {
				case errors.Is(err, admin.ErrNotFound):
					missing++
					a.note("message %d: there is none with that id, neither pending nor poisoned", id)
					continue
				case err != nil:
					return err
				case a.json:
					err = a.line(e)
				default:
					err = a.explanation(e)
				}
				if err != nil {
					return err
				}
			}
			switch {
			case missing == len(named):
				return fmt.Errorf("%w: none of these ids", errNotFound)
			case missing > 0:
				return errPartly
			default:
				return nil
			}
		},
	}
}

// explanation writes why a message does not run.
func (a *app) explanation(e admin.Explanation) error {
	if err := a.say("%d  %s (%s): %s", e.Message.ID, e.Message.Consumer, e.Message.PayloadType, e.Reason); err != nil {
		return err
	}
	return a.lines(show.Wrap(show.Text(e.Text), a.width, "  ", 0))
}
