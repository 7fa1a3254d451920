package projection_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
)

// Deposited is an event.
type Deposited struct{ Cents int }

func (Deposited) PayloadType() string { return "account.deposited" }

// Balance is a row of the table that the projection keeps.
type Balance struct {
	bun.BaseModel `bun:"table:balances,alias:b"`

	Account string `bun:"account,pk"`
	Cents   int    `bun:"cents"`
}

func book(ctx context.Context, tx bun.Tx, e Deposited) error {
	m, _ := bus.MessageFromContext(ctx)
	_, err := tx.NewInsert().Model(&Balance{Account: m.Event.Stream, Cents: e.Cents}).
		On("CONFLICT (account) DO UPDATE").Set("cents = b.cents + EXCLUDED.cents").Exec(ctx)
	return err
}

func balances() projection.Projection {
	return projection.Projection{
		Name: "balances",
		On:   []projection.Handler{projection.On(book)},
		Reset: func(ctx context.Context, tx bun.Tx) error {
			_, err := tx.NewDelete().Model((*Balance)(nil)).Where("1 = 1").Exec(ctx)
			return err
		},
	}
}

// A runner runs all projections of a process, beside its processors.
func ExampleNewRunner() {
	run := func(ctx context.Context, db *bun.DB, log *eventlog.Log) error {
		runner, err := projection.NewRunner(db, log, projection.RunnerConfig{}, balances())
		if err != nil {
			return err
		}
		return runner.Run(ctx) // until ctx ends
	}
	fmt.Println(run(context.Background(), nil, nil))
	// Output: projection: NewRunner: the database handle or the log is nil
}

// Read your own writes: wait until the projection has applied them.
func ExampleRunner_WaitFor() {
	var (
		ctx    = context.Background() // bounded, in an application
		db     *bun.DB                // opened by the application
		log    *eventlog.Log
		runner *projection.Runner
	)
	var appended eventlog.Appended
	err := log.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) (err error) {
		appended, err = log.Append(ctx, tx, "account-42", eventlog.AnyVersion, Deposited{Cents: 700})
		return err
	})
	if err == nil {
		err = runner.WaitFor(ctx, "balances", appended)
	}
	if errors.Is(err, projection.ErrHalted) {
		fmt.Println("mend the cause, then call Resume:", err)
	}
	// Select the balance.
}

// Rebuild the tables in place. Readers see them fill up while a runner runs.
func ExampleRunner_Rebuild() {
	var runner *projection.Runner
	fmt.Println(runner.Rebuild(context.Background(), "balances"))
}

// Rebuild beside the old version: run both, and promote the new one once it has caught up. Active
// returns the version to read.
func ExampleRunner_Promote() {
	var (
		ctx    = context.Background()
		db     *bun.DB // opened by the application
		runner *projection.Runner
	)
	err := runner.Promote(ctx, "balances", 2, 0)
	if late, ok := errors.AsType[*projection.LagError](err); ok {
		fmt.Println("not yet:", late.Lag, "positions to go")
	}
	version, err := runner.Active(ctx, db, "balances")
	fmt.Println("read version", version, err)
}

// An inline projection is applied in the transaction of the append, so it is never behind.
func ExampleNewInline() {
	types, err := eventlog.NewTypes(eventlog.Event[Deposited]())
	if err != nil {
		fmt.Println(err)
		return
	}
	inline, err := projection.NewInline(types, balances())
	if err != nil {
		fmt.Println(err)
		return
	}
	config := eventlog.LogConfig{Inline: []eventlog.Inline{inline}} // for eventlog.NewLog
	fmt.Println(len(config.Inline), inline.Handles("account.deposited"))
	// Output: 1 true
}

// CatchUp applies all pending events: for tests, and for commands that rebuild and exit.
func ExampleRunner_CatchUp() {
	var (
		ctx = context.Background()
		db  *bun.DB // opened by the application
		log *eventlog.Log
	)
	runner, err := projection.NewRunner(db, log, projection.RunnerConfig{}, balances())
	if err == nil {
		_, err = runner.CatchUp(ctx)
	}
	fmt.Println(err)
}
