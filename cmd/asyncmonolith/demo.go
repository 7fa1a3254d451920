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

func (a *app) demoCommand() *cobra.Command {
	var path string
	var force, live bool
	var serve time.Duration
	c := &cobra.Command{
		Use:   "demo",
		Short: "Make a SQLite database with something of everything in it, to look at",
		Long: "Make a SQLite database with something of everything in it, to look at: a shop whose messages run, wait and\n" +
			"fail. It takes some seconds, and leaves nothing running.",
		Example: "  asyncmonolith demo\n  asyncmonolith demo --path shop.db --live",
		Args:    func(c *cobra.Command, args []string) error { return takes(nothing)(c, args) },
		RunE: func(c *cobra.Command, _ []string) error {
			if serve < 0 || path == "" {
				return usage(fmt.Errorf("--path %q, --serve-for %s: a path, and a time of 0 or more, are allowed", path, serve))
			}
			for _, flag := range []string{"dsn", "dsn-file", "schema", "prefix"} {
				if c.Flags().Changed(flag) {
					return usage(fmt.Errorf("demo makes a database of its own: --path says where, and --%s has no meaning", flag))
				}
			}
			return a.demo(c, path, force, live, serve)
		},
	}
	flags := c.Flags()
	flags.StringVar(&path, "path", "asyncmonolith-demo.db", "the file to make")
	flags.BoolVar(&force, "force", false, "take the place of a demo database that is there")
	flags.BoolVar(&live, "live", false, "go on working until Ctrl-C, so that there is something to watch")
	flags.DurationVar(&serve, "serve-for", 0, "go on working for so long")
	return c
}

func (a *app) demo(c *cobra.Command, path string, force, live bool, serve time.Duration) error {
	ctx := c.Context()
	shop, err := demo.New(ctx, path, force)
	switch {
	case errors.Is(err, demo.ErrExists):
		return usage(fmt.Errorf("%w: --force makes it anew", err))
	case errors.Is(err, demo.ErrForeign):
		return usage(fmt.Errorf("%w: choose another --path", err))
	case err != nil:
		return err
	}
	if live && serve == 0 {
		serve = -1
	}
	began := time.Now()
	if !a.json {
		fmt.Fprintln(a.out, "A shop opens, and things go wrong in it …")
	}
	var said error
	err = shop.Run(ctx, serve, func() { said = a.tryNext(c.Root(), path, shop.Waits(ctx), serve != 0, time.Since(began)) })
	return errors.Join(err, said, shop.Close())
}

// tryNext says what there is to see, as commands to copy.
func (a *app) tryNext(root *cobra.Command, path string, waits int64, live bool, took time.Duration) error {
	dsn := "sqlite:" + filepath.Clean(path)
	if a.json {
		return show.JSON(a.out, struct {
			Path string `json:"path"`
			DSN  string `json:"dsn"`
		}{path, dsn})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s is ready, after %s.", show.Text(path), took.Round(100*time.Millisecond))
	if live {
		fmt.Fprintf(&b, " The shop stays open until Ctrl-C: look from another terminal.")
	} else {
		fmt.Fprintf(&b, " Nothing works on it: --live keeps the shop open.")
	}
	fmt.Fprintf(&b, " Try:\n\n  export ASYNCMONOLITH_DSN=%s\n", quoted(dsn))
	for _, try := range []struct{ command, says string }{
		{"status", "what waits and what fails"}, {"top", "the same, as it changes"}, {"serve --role operator --show-payloads", "all of it, in a browser"}, {"doctor", "what is wrong, and what to do"},
		{"poisoned groups --show-payloads", "what has failed for good, by kind"}, {fmt.Sprint("explain ", waits), "why a message does not run"},
		{"schedules list", "what fires when"}, {"processes", "what runs, and what was lost"}, {"operations list", "what people have changed"},
	} {
		if found, rest, err := root.Find(strings.Fields(try.command)); err == nil && found != root && (len(rest) == 0 || !found.HasSubCommands()) {
			fmt.Fprintf(&b, "  asyncmonolith %-31s # %s\n", try.command, try.says)
		}
	}
	_, err := fmt.Fprint(a.out, b.String())
	return err
}

// quoted is a text as one word of a shell.
func quoted(word string) string {
	special := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/.:_-+,@", r)
	}
	if !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
