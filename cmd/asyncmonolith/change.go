package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// changing gives a command the flags of those that change something.
func (a *app) changing(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&a.yes, "yes", false, "do it: without, the command shows what it would do and exits with 4")
	c.Flags().StringVar(&a.reason, "reason", "", "why, for the audit and for others to see")
	c.PreRunE = func(*cobra.Command, []string) error {
		if a.yes && strings.TrimSpace(a.reason) == "" {
			return usage(errors.New("--reason is missing: who says --yes says why"))
		}
		return nil
	}
	return c
}

// unconfirmed is an error unless the person wants a change.
func (a *app) unconfirmed() error {
	if a.yes {
		return nil
	}
	return errNotConfirmed
}

// change is a command that changes one thing: it says what it would do, or does it and says so.
func (a *app) change(session *ops.Session, would string, do func(*ops.Session) error, done any, said string) error {
	if err := a.unconfirmed(); err != nil {
		if a.json {
			return a.also(map[string]string{"would": would}, err)
		}
		return a.alsoSay("This would "+would+".", err)
	}
	if err := do(session); err != nil {
		return err
	}
	if a.json {
		return a.line(done)
	}
	return a.say("%s", said)
}
