package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

type terminal struct {
	in       io.Reader
	out, err io.Writer
	env      func(string) string
	width    int  // of out; 0 unless out is a terminal
	errTTY   bool // err is a terminal
}

func newTerminal() terminal {
	return terminal{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Getenv, width: widthOf(os.Stdout), errTTY: isTerminal(os.Stderr)}
}

// app is one run of the program: its output, the flags that all commands share, and the database that they name.
type app struct {
	*output
	dsn, dsnFile string
	tables       bus.Tables

	db      *bun.DB
	service *ops.Service // see session
}

// run runs the program with args and returns its exit code.
func run(ctx context.Context, args []string, t terminal) int {
	a := &app{output: &output{terminal: t}}
	defer a.close()
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		a.note("asyncmonolith: %s", a.sentence(ctx, err))
	}
	return exitOf(err)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "asyncmonolith",
		Short: "Operate the messages of a database",
		Long: `Operate the messages of a database: show which wait, run and fail, and why. Changes are previewed,
rate-limited and can be undone.

--dsn, the file of --dsn-file, or ASYNCMONOLITH_DSN names the database:

  postgres://user:password@host:5432/database
  mariadb://user:password@host:3306/database    (?socket=/run/mysqld.sock, ?tls=true)
  sqlite:path/to/file

Put passwords into the environment or the file: every user of a machine can see the arguments of processes.

A command that changes something prints a preview and exits with 4. --yes --reason TEXT makes the change. Exit codes:
0 done, 1 error, 2 wrong usage, 3 not found, 4 not confirmed, 5 done in part, 6 check failed, 7 tables missing or outdated.`,
		Example: `  asyncmonolith status
  asyncmonolith poisoned groups
  asyncmonolith requeue --consumer mail --fingerprint 1f00ba5e1f00ba5e1
  asyncmonolith explain 4711`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(nearestFlag)
	flags := root.PersistentFlags()
	flags.StringVar(&a.dsn, "dsn", "", "database without a password: postgres://…, mariadb://… or sqlite:PATH (default: ASYNCMONOLITH_DSN)")
	flags.StringVar(&a.dsnFile, "dsn-file", "", "file with the DSN")
	flags.StringVar(&a.tables.Schema, "schema", "", "schema of the tables (PostgreSQL)")
	flags.StringVar(&a.tables.Prefix, "prefix", "", "prefix of the table names")
	flags.BoolVar(&a.json, "json", false, "write JSON, one object per line")
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	addCommands(root, a)
	return asGroup(root)
}
