package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// connectTime bounds how long the database may take to answer.
const connectTime = 10 * time.Second

// open connects to the database, once. With create it makes the file of a SQLite database.
func (a *app) open(ctx context.Context, create bool) (*bun.DB, error) {
	if a.db != nil {
		return a.db, nil
	}
	dsn, err := a.findDSN()
	if err != nil {
		return nil, err
	}
	a.secret = connect.Secret(strings.TrimSpace(dsn))
	if err := access.CheckTables(a.tables); err != nil {
		return nil, usage(err)
	}
	open := connect.Create
	if !create {
		open = connect.Open
		if err := a.secret.Exists(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, connectTime, connect.ErrSilent)
	defer cancel()
	a.db, err = open(ctx, a.secret)
	if err != nil && context.Cause(ctx) == connect.ErrSilent {
		err = connect.ErrSilent
	}
	return a.db, err
}

func (a *app) findDSN() (string, error) {
	switch {
	case a.dsn != "" && a.dsnFile != "":
		return "", usage(errors.New("--dsn and --dsn-file are both given: use one"))
	case a.dsn != "" && connect.Secret(a.dsn).HasPassword():
		return "", usage(errors.New("--dsn has a password, which all users of this machine can see in the list of processes: " +
			"use ASYNCMONOLITH_DSN or --dsn-file"))
	case a.dsn != "":
		return a.dsn, nil
	case a.dsnFile != "":
		text, err := os.ReadFile(a.dsnFile)
		if err != nil {
			return "", usage(fmt.Errorf("--dsn-file: %w", err))
		}
		return string(text), nil
	case a.env("ASYNCMONOLITH_DSN") != "":
		return a.env("ASYNCMONOLITH_DSN"), nil
	default:
		return "", usage(errors.New("no database: give --dsn or --dsn-file, or set ASYNCMONOLITH_DSN"))
	}
}

// session opens a session for the user, who has the DSN and may therefore do everything. It also sets a.service. The settings
// change the service's configuration.
func (a *app) session(ctx context.Context, settings ...func(*ops.Config)) (*operator.Session, error) {
	db, err := a.open(ctx, false)
	if err != nil {
		return nil, err
	}
	registry, err := bus.RegistryConfig{Tables: a.tables}.NewRegistry()
	if err != nil {
		return nil, usage(err)
	}
	c := ops.Config{DB: db, Registry: registry, Logger: slog.New(slog.DiscardHandler)}
	for _, set := range settings {
		set(&c)
	}
	a.service, err = ops.New(c)
	if err != nil { // the database cannot have such tables
		return nil, usage(err)
	}
	return operator.As(a.service, ops.Principal{Name: actor(), Role: ops.Administrator}), nil
}

// onSession returns a RunE that opens a session and calls run with it.
func (a *app) onSession(
	run func(context.Context, *operator.Session, []string) error, settings ...func(*ops.Config),
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		session, err := a.session(c.Context(), settings...)
		if err != nil {
			return err
		}
		return run(c.Context(), session, args)
	}
}

// onIDs is onSession for a command whose arguments are ids.
func (a *app) onIDs(
	run func(context.Context, *operator.Session, []int64) error, settings ...func(*ops.Config),
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		byIDs := func(ctx context.Context, session *operator.Session, _ []string) error { return run(ctx, session, ids) }
		return a.onSession(byIDs, settings...)(c, args)
	}
}

// actor is the name of the user in the audit.
func actor() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return "cli:" + name + "@" + host
}

func (a *app) close() {
	if a.db != nil {
		_ = a.db.Close()
	}
}
