package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
)

// confirmation is the flags of a command that changes data.
type confirmation struct {
	yes    bool
	reason string
}

// confirmed adds the flags to c and returns it.
func (f *confirmation) confirmed(c *cobra.Command) *cobra.Command {
	c.Flags().BoolVar(&f.yes, "yes", false, "make the change; without it the command prints a preview and exits with 4")
	c.Flags().StringVar(&f.reason, "reason", "", "reason, for the audit")
	c.PreRunE = func(*cobra.Command, []string) error {
		if f.yes && strings.TrimSpace(f.reason) == "" {
			return usage(errors.New("--reason is missing: --yes needs a reason"))
		}
		return nil
	}
	return c
}

// unconfirmed returns an error unless --yes is given.
func (f *confirmation) unconfirmed() error {
	if f.yes {
		return nil
	}
	return errNotConfirmed
}

// change makes one change and reports it. Without --yes it writes what it would do.
func (f *confirmation) change(o *output, would string, do func() error, done any, said string) error {
	if err := f.unconfirmed(); err != nil {
		return o.result(map[string]string{"would": would}, "This would "+would+".", err)
	}
	if err := do(); err != nil {
		return err
	}
	return o.result(done, said, nil)
}
