package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// bulkChange is a command that changes messages: those with the given ids at once, or all that its flags select as an operation.
type bulkChange struct {
	operationStart
	selected selection
	byIDs    func(context.Context, *operator.Session, []int64) error

	all bool
	at  time.Time // see ops.Target.At
}

// selection is the flags that select messages. target also reports whether they select less than all.
type selection interface {
	add(a *app, c *cobra.Command)
	config(c *ops.Config)
	target() (target ops.Target, narrow bool)
}

func (b *bulkChange) command(c *cobra.Command) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = b.run
	b.selected.add(b.app, c)
	c.Flags().BoolVar(&b.all, "all", false, "all messages")
	c.Flags().IntVar(&b.options.Rate, "rate", 100, "messages per second, up to 100000")
	b.add(c, "run the operation from here and show its progress")
	return c
}

// atOnce refuses flags of operations for messages that are changed at once.
func atOnce(c *cobra.Command, messages string) error {
	for _, name := range []string{"canary", "rate", "undo-window", "wait"} {
		if c.Flags().Changed(name) {
			return usage(fmt.Errorf("--%s concerns operations, and %s are changed at once: leave it out", name, messages))
		}
	}
	return nil
}

func (b *bulkChange) run(c *cobra.Command, args []string) error {
	target, narrow := b.selected.target()
	target.At = b.at
	switch {
	case len(args) > 0 && (narrow || b.all):
		return usage(errors.New("ids and flags that select messages are both given: use one"))
	case len(args) == 0 && !narrow && !b.all:
		return usage(errors.New("no messages are selected: give ids, flags such as --consumer, or --all"))
	case narrow && b.all:
		return usage(errors.New("--all and flags that select messages are both given: use one"))
	}
	ids, err := parseIDs(args)
	switch {
	case err != nil:
	case len(ids) == 0:
		err = b.checkUndoWindow()
	default:
		err = atOnce(c, "ids")
	}
	if err != nil {
		return err
	}
	session, err := b.app.session(c.Context(), b.config, b.selected.config)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return b.start(c.Context(), session, target)
	}
	return b.byIDs(c.Context(), session, ids)
}
