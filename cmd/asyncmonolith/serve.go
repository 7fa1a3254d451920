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

type serveCommand struct {
	app     *app
	port    uint16
	role    string
	work    bool
	content contentFlag
}

func (s *serveCommand) command() *cobra.Command {
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the console on this machine",
		Long: `Serve the console on 127.0.0.1 until Ctrl-C. The printed link works once, in one browser.

The browser has the role viewer, which changes nothing; --role sets another. --show-payloads shows contents of messages
to operators and administrators.`,
		Example: "  asyncmonolith serve\n  asyncmonolith serve --role operator --show-payloads --port 8484",
		Args:    checkArgs(noArgs),
		RunE:    s.run,
	}
	flags := c.Flags()
	flags.Uint16Var(&s.port, "port", 0, "port; 0 means a free one")
	flags.StringVar(&s.role, "role", ops.Viewer.String(), "role of the browser: viewer, operator or administrator")
	flags.BoolVar(&s.content.shown, "show-payloads", false, "show payloads, headers and error texts to operators and administrators")
	flags.BoolVar(&s.work, "run-operations", false, "also run operations")
	_ = c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions(roles(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (s *serveCommand) run(c *cobra.Command, _ []string) error {
	role, err := roleOf(s.role)
	if err != nil {
		return err
	}
	if _, err := s.app.session(c.Context(), s.content.config); err != nil {
		return err
	}
	if s.work {
		end, err := startRunner(c.Context(), s.app.service, (*ops.Runner).Run)
		if err != nil {
			return err
		}
		defer end()
	}
	return s.serve(c.Context(), role)
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
	headerTime   = 5 * time.Second  // to read the headers of a request
	requestTime  = 30 * time.Second // to read a request, and to answer it
	idleTime     = time.Minute
	shutdownTime = 3 * time.Second // for open requests
)

// serve serves the console until ctx is done.
func (s *serveCommand) serve(ctx context.Context, role ops.Role) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", s.port))
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	address := listener.Addr().(*net.TCPAddr)
	login := newLogin(address.Port, ops.Principal{Name: actor(), Role: role})
	logger := slog.New(slog.NewTextHandler(s.app.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	pages, err := console.New(s.app.service, console.Config{
		Prefix: login.prefix, Authorize: login.authorize, Hosts: login.hosts(), Logger: logger,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("serve: %w", err), listener.Close())
	}
	server := &http.Server{
		Handler: login.handler(pages), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ReadHeaderTimeout: headerTime, ReadTimeout: requestTime, WriteTimeout: requestTime, IdleTimeout: idleTime,
	}
	if err := s.writeLink(login, role); err != nil {
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
		_ = server.Close() // requests that are still open
	}
	<-ended
	return nil
}

func (s *serveCommand) writeLink(l *login, role ops.Role) error {
	if s.app.json {
		return s.app.line(map[string]string{"url": l.link(), "role": role.String()})
	}
	return errors.Join(
		s.app.say("The console is at %s", l.link()),
		s.app.say("The link works once, for the role %s%s. Ctrl-C ends the server.", role, s.noContents(role)))
}

// noContents says why the console shows no contents, or "" if it does.
func (s *serveCommand) noContents(role ops.Role) string {
	switch {
	case role == ops.Viewer:
		return ", without contents: see --role and --show-payloads"
	case !s.content.shown:
		return ", without contents: see --show-payloads"
	default:
		return ""
	}
}
