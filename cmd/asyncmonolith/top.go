package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/top"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

// leastInterval is the shortest --interval. Overviews are cached, so the database is read less often.
const leastInterval = 200 * time.Millisecond

type topCommand struct {
	app      *app
	interval time.Duration
	content  contentFlag
}

func (t *topCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch consumers, failures, processes and operations",
		Long: "Watch consumers, failures, processes and operations on a terminal. The database is read at most every two seconds,\n" +
			"and for at most a fiftieth of the time.",
		Example: "  asyncmonolith top\n  asyncmonolith top --show-payloads --interval 5s",
		Args:    checkArgs(noArgs),
		RunE:    t.run,
	}
	c.Flags().DurationVar(&t.interval, "interval", 2*time.Second, "refresh interval")
	return t.content.add(c)
}

func (t *topCommand) run(c *cobra.Command, _ []string) error {
	switch {
	case t.app.json:
		return usage(errors.New("top is for people, and has no --json: use status --json"))
	case t.interval < leastInterval:
		return usage(fmt.Errorf("--interval %s: %s or more is allowed", t.interval, leastInterval))
	case !isTerminal(t.app.in) || !isTerminal(t.app.out):
		return usage(errors.New("top needs a terminal: use status"))
	}
	session, err := t.app.session(c.Context(), t.content.config)
	if err != nil {
		return err
	}
	say := func(err error) string { return t.app.secret.Scrub(t.app.sentence(c.Context(), err)) }
	return top.Run(c.Context(), top.Config{
		Service: topService{session.Consumers(), session}, Every: t.interval, Say: say, In: t.app.in, Out: t.app.out, Env: os.Environ(),
	})
}

// topService is what top reads and changes.
type topService struct {
	*operator.Consumers
	session *operator.Session
}

func (s topService) Overview(ctx context.Context) (operator.Overview, error) {
	return s.session.Overview(ctx)
}

// widthOf is the width of a terminal, or 0 if the file is none.
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

func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	return ok && term.IsTerminal(f.Fd())
}
