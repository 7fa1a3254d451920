package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// terminal is where the command reads from and writes to.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	width    int  // of out, if that is a terminal; else 0
	errTTY   bool // err is a terminal
}

func newTerminal() terminal {
	return terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, width: widthOf(os.Stdout), errTTY: isTerminal(os.Stderr)}
}

// app is one run of the command, with the flags that all commands have.
type app struct {
	terminal
	ctx            context.Context // ends with the run
	dsn, dsnFile   string
	schema, prefix string
	json           bool

	// Flags of several commands.
	content bool              // show contents
	sought  map[string]string // the header that is looked for
	error   string            // the text of errors that is looked for
	yes     bool
	reason  string
	undo    time.Duration // see ops.Config.UndoWindow

	creates bool // the database may have to be made
	secret  connect.Secret
	db      *bun.DB
	service *ops.Service
}

// connectTime is how long the database may take to answer at all.
const connectTime = 10 * time.Second

// run runs the command with arguments, and returns its exit code.
func run(ctx context.Context, args []string, t terminal) int {
	a := &app{terminal: t, ctx: ctx}
	defer a.close()
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		a.complain(err)
	}
	return exitOf(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "asyncmonolith",
		Short: "Operate the messages of a database",
		Long: `Operate the messages of a database: who runs and what waits, what fails and why, and changes that are
previewed, paced and can be undone.

The database is named by --dsn, by the file of --dsn-file, or by ASYNCMONOLITH_DSN:

  postgres://user:password@host:5432/database
  mariadb://user:password@host:3306/database    (?socket=/run/mysqld.sock, ?tls=true)
  sqlite:path/to/file

A password belongs into the environment or the file: everybody on a machine can see the arguments of its
processes.

What changes something shows what it would change and exits with 4; --yes --reason TEXT does it. Exit codes:
0 done, 1 error, 2 wrong usage, 3 not found, 4 not confirmed, 5 done in part, 6 check failed, 7 tables missing or old.`,
		Example: `  asyncmonolith status
  asyncmonolith poisoned groups
  asyncmonolith requeue --consumer mail --fingerprint 1f00ba5e1f00ba5e1
  asyncmonolith explain 4711`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(nearestFlag)
	flags := root.PersistentFlags()
	flags.StringVar(&a.dsn, "dsn", "", "database: postgres://…, mariadb://… or sqlite:PATH (or ASYNCMONOLITH_DSN); without a password")
	flags.StringVar(&a.dsnFile, "dsn-file", "", "file with the DSN")
	flags.StringVar(&a.schema, "schema", "", "schema of the tables (PostgreSQL)")
	flags.StringVar(&a.prefix, "prefix", "", "prefix of the tables' names")
	flags.BoolVar(&a.json, "json", false, "write JSON, one value in each line")
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	a.add(root)
	return asGroup(root)
}

// open opens the database once, and sees that it answers.
func (a *app) open() (*bun.DB, error) {
	if a.db != nil {
		return a.db, nil
	}
	dsn, err := a.findDSN()
	if err != nil {
		return nil, err
	}
	a.secret = connect.Secret(strings.TrimSpace(dsn))
	if err := a.tables().Validate(); err != nil {
		return nil, usage(err)
	}
	open := connect.Create
	if !a.creates {
		open = connect.Open
		if err := a.secret.Exists(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(a.ctx, connectTime, connect.ErrSilent)
	defer cancel()
	if a.db, err = open(ctx, a.secret); err != nil && context.Cause(ctx) == connect.ErrSilent {
		err = connect.ErrSilent
	}
	return a.db, err
}

func (a *app) findDSN() (string, error) {
	switch {
	case a.dsn != "" && a.dsnFile != "":
		return "", usage(errors.New("--dsn and --dsn-file are both given: use one"))
	case a.dsn != "" && connect.Secret(a.dsn).HasPassword():
		return "", usage(errors.New("--dsn has a password, which everybody on this machine can see in the list of processes: put the DSN into ASYNCMONOLITH_DSN, or into a file for --dsn-file"))
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

func (a *app) tables() bus.Tables { return bus.Tables{Schema: a.schema, Prefix: a.prefix} }

// session is that of the person who runs the command, who has the DSN and so may do everything. Contents are
// shown where that is asked for.
func (a *app) session() (*ops.Session, error) {
	if a.service == nil {
		db, err := a.open()
		if err != nil {
			return nil, err
		}
		registry, err := bus.RegistryConfig{Tables: a.tables()}.NewRegistry()
		if err != nil {
			return nil, usage(err)
		}
		c := ops.Config{DB: db, Registry: registry, Logger: slog.New(slog.DiscardHandler), UndoWindow: a.undo}
		switch {
		case a.content:
			c.Redact = ops.ShowAll
		case a.error != "" || len(a.sought) > 0:
			c.Redact = a.whatIsSought
		}
		if a.service, err = ops.New(c); err != nil { // tables that this database cannot have
			return nil, usage(err)
		}
	}
	return a.service.As(ops.Principal{Name: actor(), Role: ops.Administrator}), nil
}

// whatIsSought shows of a content what the person knows: it may be looked for.
func (a *app) whatIsSought(_ context.Context, c ops.Content) ops.Content {
	c.Payload = nil
	maps.DeleteFunc(c.Headers, func(name, value string) bool { known, ok := a.sought[name]; return !ok || known != value })
	for i := range c.Errors {
		if c.Errors[i] != a.error {
			c.Errors[i] = ""
		}
	}
	return c
}

// actor is who stands in the audit.
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
