package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

func (a *app) serveCommand() *cobra.Command {
	var port uint16
	var role string
	var work bool
	c := &cobra.Command{
		Use:   "serve",
		Short: "Show the console in a browser of this machine",
		Long: `Show the console, the same pages that an application can mount, in a browser of this machine: it listens on
127.0.0.1 until Ctrl-C. The link that it prints works once, and lets the browser in that opens it.

Each person with the link may look (viewer); --role lets them change something, too. Contents of messages are shown
where --show-payloads says so, to operators and administrators.`,
		Example: "  asyncmonolith serve\n  asyncmonolith serve --role operator --show-payloads --port 8484",
		Args:    takes(nothing),
		RunE: func(c *cobra.Command, _ []string) error {
			may, err := roleOf(role)
			if err != nil {
				return err
			}
			if _, err := a.session(); err != nil {
				return err
			}
			if work {
				end, err := a.work(c.Context(), (*ops.Runner).Run)
				if err != nil {
					return err
				}
				defer end()
			}
			return a.serve(c.Context(), port, may)
		},
	}
	flags := c.Flags()
	flags.Uint16Var(&port, "port", 0, "port to listen on; 0 takes one that is free")
	flags.StringVar(&role, "role", ops.Viewer.String(), "what the browser may do: viewer, operator or administrator")
	flags.BoolVar(&a.content, "show-payloads", false, "show payloads, headers and errors to operators and administrators")
	flags.BoolVar(&work, "run-operations", false, "carry out operations from here, too")
	_ = c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(roles(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func roles() []string {
	return []string{ops.Viewer.String(), ops.Operator.String(), ops.Administrator.String()}
}

func roleOf(name string) (ops.Role, error) {
	for _, r := range []ops.Role{ops.Viewer, ops.Operator, ops.Administrator} {
		if r.String() == name {
			return r, nil
		}
	}
	return ops.None, usage(fmt.Errorf("--role %q: %s are allowed", name, strings.Join(roles(), ", ")))
}

const (
	headerTime   = 5 * time.Second  // for a request's headers
	requestTime  = 30 * time.Second // for all of it, and for its answer
	idleTime     = time.Minute
	shutdownTime = 3 * time.Second // for what is under way at the end
)

// serve serves the console of the service until ctx ends.
func (a *app) serve(ctx context.Context, port uint16, role ops.Role) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	address := listener.Addr().(*net.TCPAddr)
	door := newDoor(address.Port, ops.Principal{Name: actor(), Role: role})
	logger := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	pages, err := console.New(a.service, console.Config{Prefix: door.prefix, Authorize: door.authorize, Hosts: door.hosts(), Logger: logger})
	if err != nil {
		return errors.Join(fmt.Errorf("serve: %w", err), listener.Close())
	}
	server := &http.Server{
		Handler: door.before(pages), ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: requestTime, IdleTimeout: idleTime,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	if err := a.invite(door, role); err != nil {
		return errors.Join(err, listener.Close())
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // what still waits has waited long enough
	}
	<-ended
	return nil
}

// seesNothing says why a browser sees no contents, if so.
func (a *app) seesNothing(role ops.Role) string {
	switch {
	case role == ops.Viewer:
		return ", who sees no contents: see --role and --show-payloads"
	case !a.content:
		return ", who sees no contents: see --show-payloads"
	default:
		return ""
	}
}

// invite says where the console is.
func (a *app) invite(d *door, role ops.Role) error {
	if a.json {
		return a.line(map[string]string{"url": d.link(), "role": role.String()})
	}
	return errors.Join(a.say("The console is at %s", d.link()), a.say("The link works once, and lets a browser in as %s%s. Ctrl-C ends it.", role, a.seesNothing(role)))
}
