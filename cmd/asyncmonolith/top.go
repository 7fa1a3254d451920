package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/top"
)

// leastEvery keeps top from asking all the time. How often the database is really asked goes by how
// long it takes.
const leastEvery = 200 * time.Millisecond

func (a *app) topCommand() *cobra.Command {
	var every time.Duration
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch what waits, runs and fails",
		Long: "Watch what waits, runs and fails, on a terminal. However many watch, and however often, the database is\n" +
			"asked no more than every two seconds by each, and for a fiftieth of its time.",
		Example: "  asyncmonolith top\n  asyncmonolith top --show-payloads --interval 5s",
		Args:    func(c *cobra.Command, args []string) error { return takes(nothing)(c, args) },
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case a.json:
				return usage(errors.New("top is for people, and has no --json: use status --json"))
			case every < leastEvery:
				return usage(fmt.Errorf("--interval %s: %s or more is allowed", every, leastEvery))
			case !isTerminal(a.in) || !isTerminal(a.out):
				return usage(errors.New("top needs a terminal: use status"))
			}
			session, err := a.session()
			if err != nil {
				return err
			}
			return top.Run(c.Context(), top.Config{Service: session, Every: every, Say: func(err error) string { return a.secret.Scrub(a.sentence(err)) }, In: a.in, Out: a.out, Env: os.Environ()})
		},
	}
	c.Flags().DurationVar(&every, "interval", 2*time.Second, "time between looks")
	a.contentFlag(c)
	return c
}

// widthOf is how many cells a line of a terminal has, and 0 of what is none.
func widthOf(file *os.File) int {
	if !isTerminal(file) {
		return 0
	}
	width, _, err := term.GetSize(file.Fd())
	if err != nil {
		return 0
	}
	return width
}

// isTerminal reports whether a file is a terminal.
func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}
