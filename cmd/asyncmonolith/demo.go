package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/demo"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

type demoCommand struct {
	app         *app
	path        string
	force, live bool
	serveFor    time.Duration
}

func (d *demoCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "demo",
		Short: "Make a SQLite database with sample data",
		Long: "Make a SQLite database with sample data: a shop whose messages run, wait and fail. This takes some seconds. Without\n" +
			"--live, no process uses the database afterwards.",
		Example: "  asyncmonolith demo\n  asyncmonolith demo --path shop.db --live",
		Args:    checkArgs(noArgs),
		PreRunE: d.check,
		RunE:    d.run,
	}
	flags := c.Flags()
	flags.StringVar(&d.path, "path", "asyncmonolith-demo.db", "file to create")
	flags.BoolVar(&d.force, "force", false, "replace an existing demo database")
	flags.BoolVar(&d.live, "live", false, "process messages until Ctrl-C")
	flags.DurationVar(&d.serveFor, "serve-for", 0, "process messages for this time")
	return c
}

func (d *demoCommand) check(c *cobra.Command, _ []string) error {
	if d.serveFor < 0 || d.path == "" {
		return usage(fmt.Errorf("--path %q, --serve-for %s: a path, and a time of 0 or more, are allowed", d.path, d.serveFor))
	}
	for _, flag := range []string{"dsn", "dsn-file", "schema", "prefix"} {
		if c.Flags().Changed(flag) {
			return usage(fmt.Errorf("demo makes its own database at --path: --%s is not allowed", flag))
		}
	}
	return nil
}

func (d *demoCommand) run(c *cobra.Command, _ []string) error {
	ctx := c.Context()
	shop, err := demo.New(ctx, d.path, d.force)
	switch {
	case errors.Is(err, demo.ErrExists):
		return usage(fmt.Errorf("%w: --force replaces it", err))
	case errors.Is(err, demo.ErrForeign):
		return usage(fmt.Errorf("%w: choose another --path", err))
	case err != nil:
		return err
	}
	if d.live && d.serveFor == 0 {
		d.serveFor = -1
	}
	began := time.Now()
	if !d.app.json {
		fmt.Fprintln(d.app.out, "Creating sample data …")
	}
	var said error
	err = shop.Run(ctx, d.serveFor, func() { said = d.writeNext(c.Root(), shop.Waits(ctx), time.Since(began)) })
	return errors.Join(err, said, shop.Close())
}

// writeNext suggests commands to copy. waiting is the id of a message that does not run.
func (d *demoCommand) writeNext(root *cobra.Command, waiting int64, took time.Duration) error {
	dsn := "sqlite:" + filepath.Clean(d.path)
	if d.app.json {
		return d.app.line(struct {
			Path string `json:"path"`
			DSN  string `json:"dsn"`
		}{d.path, dsn})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s is ready, after %s.", show.Text(d.path), took.Round(100*time.Millisecond))
	if d.serveFor != 0 {
		fmt.Fprintf(&b, " Messages run until Ctrl-C: use another terminal.")
	} else {
		fmt.Fprintf(&b, " No process uses it: --live runs messages.")
	}
	fmt.Fprintf(&b, " Try:\n\n  export ASYNCMONOLITH_DSN=%s\n", quoted(dsn))
	for _, try := range []struct{ command, says string }{
		{"status", "what waits and what fails"}, {"top", "the same, refreshed"},
		{"serve --role operator --show-payloads", "the console, in a browser"}, {"doctor", "problems and remedies"},
		{"poisoned groups --show-payloads", "poisoned messages by failure"},
		{fmt.Sprint("explain ", waiting), "why a message does not run"}, {"schedules list", "schedules and next fires"},
		{"processes", "live and lost processes"}, {"operations list", "changes by operators"},
	} {
		found, rest, err := root.Find(strings.Fields(try.command))
		if err == nil && found != root && (len(rest) == 0 || !found.HasSubCommands()) {
			fmt.Fprintf(&b, "  asyncmonolith %-31s # %s\n", try.command, try.says)
		}
	}
	_, err := fmt.Fprint(d.app.out, b.String())
	return err
}

// quoted quotes a word for a shell.
func quoted(word string) string {
	special := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/.:_-+,@", r)
	}
	if !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
