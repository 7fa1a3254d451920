package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

type discardCommand struct {
	*poisonedChange
	exported string // the file of --exported
}

func newDiscard(a *app) *discardCommand {
	d := &discardCommand{poisonedChange: newPoisonedChange(a, ops.Discard, "discarded")}
	d.do = func(s *operator.Poisoned, ctx context.Context, reason string, ids ...int64) (operator.RequeueResult, error) {
		n, err := s.Discard(ctx, reason, ids...)
		return operator.RequeueResult{Result: poison.Result{Requeued: n, Missing: len(ids) - n}}, err
	}
	return d
}

func (d *discardCommand) command() *cobra.Command {
	c := d.poisonedChange.command(&cobra.Command{
		Use: "discard [ID...]", Short: "Delete poisoned messages",
		Long: `Delete poisoned messages. Ids are deleted at once. Flags select messages for an operation, which starts after 10 s and
can be undone until then. --exported deletes at once the messages in a file of poisoned export, and no others.`,
		Example: `  asyncmonolith discard 17 18 --yes --reason "test data"
  asyncmonolith discard --exported mail.ndjson --yes --reason "kept elsewhere"
  asyncmonolith discard --consumer mail --poisoned-before 2025-01-01 --yes --reason "too old to matter"`,
	})
	c.RunE = d.run
	c.Flags().Var(selecting{&d.exported}, "exported", "messages in a file of poisoned export --show-payloads")
	_ = c.MarkFlagFilename("exported")
	return c
}

func (d *discardCommand) run(c *cobra.Command, args []string) error {
	if d.exported == "" {
		return d.poisonedChange.run(c, args)
	}
	_, narrow := d.filter.target()
	if len(args) > 0 || narrow || d.all {
		return usage(errors.New("--exported excludes ids and flags that select messages: use one"))
	}
	if err := atOnce(c, "messages of --exported"); err != nil {
		return err
	}
	kept, err := readExport(d.exported)
	if err != nil {
		return err
	}
	session, err := d.app.session(c.Context(), d.config)
	if err != nil {
		return err
	}
	return d.discardExported(c.Context(), session, kept)
}

// exported is a line of a file that "poisoned export" wrote.
type exported struct {
	ID        int64     `json:"id"`
	MessageID uuid.UUID `json:"message_id"`
	Hidden    bool      `json:"hidden"`
}

// readExport reads the whole file first, so that nothing is deleted if it is damaged.
func readExport(name string) (kept []exported, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, usage(fmt.Errorf("--exported: %w", err))
	}
	defer file.Close()
	lines := json.NewDecoder(bufio.NewReader(file))
	for {
		var m exported
		err := lines.Decode(&m)
		line := len(kept) + 1
		switch {
		case errors.Is(err, io.EOF):
			return kept, nil
		case err != nil || m.ID < 1 || m.MessageID == uuid.Nil:
			return nil, usage(fmt.Errorf("--exported %s: line %d is not a message, so the file is damaged: export again", name, line))
		case m.Hidden:
			return nil, usage(fmt.Errorf("--exported %s: line %d has no content, which would be lost: export with --show-payloads", name, line))
		}
		kept = append(kept, m)
	}
}

// discardExported deletes the exported messages. Messages that were poisoned later stay.
func (d *discardCommand) discardExported(ctx context.Context, session *operator.Session, kept []exported) error {
	unconfirmed, p, n := d.unconfirmed(), d.app.progress(), 0
	for part := range slices.Chunk(kept, mostPreviewed) {
		ids, err := stillPoisoned(ctx, session, part)
		gone := len(ids)
		if err == nil && gone > 0 && unconfirmed == nil {
			gone, err = session.Poisoned().Discard(ctx, d.reason, ids...) // some may be requeued meanwhile
		}
		if err != nil {
			return errors.Join(err, d.app.say("%s %s before the error.", plural(n, "message"), d.done))
		}
		n += gone
		p.show(fmt.Sprintf("%s of %d %s", plural(n, "message"), len(kept), d.done))
	}
	p.end()
	discarded, missing := plural(n, "message"), len(kept)-n
	result := map[string]int{"discarded": n, "missing": missing}
	switch {
	case n == 0:
		return fmt.Errorf("%w: no message of the file is poisoned in this database", errNotFound)
	case unconfirmed != nil:
		text := fmt.Sprintf("%s would be %s, of %d in the file.", discarded, d.done, len(kept))
		return d.app.result(map[string]string{"would": "discard " + discarded}, text, unconfirmed)
	case missing > 0:
		text := fmt.Sprintf("%s %s. %d of the file are not poisoned any more.", discarded, d.done, missing)
		return d.app.result(result, text, errPartly)
	default:
		return d.app.result(result, fmt.Sprintf("%s %s.", discarded, d.done), nil)
	}
}

// stillPoisoned returns the ids whose message is still poisoned. It compares message ids, since the file may come from
// another database.
func stillPoisoned(ctx context.Context, session *operator.Session, kept []exported) (ids []int64, err error) {
	of := make(map[int64]uuid.UUID, len(kept))
	for _, m := range kept {
		of[m.ID] = m.MessageID
		ids = append(ids, m.ID)
	}
	found, _, err := session.Poisoned().List(ctx, poison.Filter{IDs: ids}, admin.Page{Size: len(ids)})
	ids = nil
	for _, m := range found {
		if of[m.ID] == m.MessageID {
			ids = append(ids, m.ID)
		}
	}
	return ids, err
}
