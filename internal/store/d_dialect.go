package store

import (
	"context"
	"embed"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// engine is all that differs between databases. Those that read their rows or answers in
// several statements say so; the others take one for each method.
type engine interface {
	// The database.

	name() string
	// tables are the names that its statements have.
	tables() names
	// files are the migrations, with {names} to fill in.
	files() embed.FS
	// rowLocks tells whether it locks rows rather than itself.
	rowLocks() bool
	// readOnlyQuery asks whether the server takes no writes. It is empty where a handler
	// that runs proves that it does.
	readOnlyQuery() string
	// notification is a statement that sends a text to other processes. It is empty where
	// there are no notifications.
	notification(channel, text string) (statement string, args []any)
	// sessionColumns are columns of the Session, and with them bounds how long that may
	// idle in its transaction. They may be empty.
	sessionColumns(idle time.Duration) string
	// migrating runs fn in a transaction that keeps other instances from
	// migrating, with the table of migrations in place.
	migrating(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) error
	// within limits how long a transaction of our own can hold on to anything when
	// its client vanishes: each statement, and each wait for the next one.
	within(ctx context.Context, tx bun.Tx, limit time.Duration) error
	// literals reports settings under which text could end its literal, since bun writes
	// values into the statements. It is part of check.
	literals(ctx context.Context, db bun.IDB) error
	// check reports settings under which the library cannot keep its promises.
	check(ctx context.Context, db bun.IDB) (Settings, error)

	// Statements.

	raw(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery

	// Instants, as SQL expressions.

	// now is the database's clock, or the fixed instant of a test kit.
	now(ctx context.Context) string
	// after is an instant on the database's clock, d from now.
	after(ctx context.Context, d time.Duration) string
	// at is a fixed instant.
	at(t time.Time) string

	// Messages that are produced.

	insert(ctx context.Context, db bun.IDB, rows []NewMessage) error
	// insertKeyed leaves out rows whose insert id is pending, and returns the
	// message ids of the others.
	insertKeyed(ctx context.Context, db bun.IDB, rows []NewMessage) ([]bus.MessageID, error)

	// Claims.

	// probe looks for what is due and clean; with all, for everything else as well.
	probe(ctx context.Context, db bun.IDB, wants []Want, all bool) (Probe, error)
	claim(ctx context.Context, db *bun.DB, r ClaimRequest) (Claim, error)

	// Outcomes.

	finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []Finished, err error)
	// settle gives up when somebody else keeps a message locked. With freeOnly it leaves
	// those out, where it can tell.
	settle(ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []Result, freeOnly bool) (Settled, error)
	disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error

	// Leases.

	extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error)
	recover(ctx context.Context, db bun.IDB, maxCrashes int) (Recovered, error)
	strangers(ctx context.Context, db bun.IDB, wants []Want) ([]Stranger, error)

	// Consumers with a transaction.

	fence(ctx context.Context, tx bun.IDB, f Fence) (held []int64, err error)
	intact(ctx context.Context, tx bun.IDB) error
	// interrupt ends the statement that a transaction is in, and spares a session
	// that is in another transaction by now.
	interrupt(ctx context.Context, db *bun.DB, session Session, ended time.Time) error
	exists(ctx context.Context, db bun.IDB, id int64) (bool, error)
	// remove deletes messages of the session's transaction and returns how many.
	remove(ctx context.Context, tx bun.IDB, session Session, ids []int64) (int, error)
	// asBegun sets back what a function may have set that decides which tables a
	// statement finds, and as whom: what to send before it. Empty where there is no such.
	asBegun(session Session) (statement string, args []any)
	// usable asks the transaction whether it could still commit.
	usable(ctx context.Context, tx bun.IDB) bool

	// What people change.

	// lockPending locks messages that nobody else has locked; callers says whose
	// transaction it is.
	lockPending(ctx context.Context, tx bun.Tx, callers bool, ids []int64) (locked []int64, err error)
	// changeLocked deletes locked messages that no claim has, or makes them due.
	changeLocked(ctx context.Context, tx bun.Tx, ids []int64, due string) ([]changedRow, error)
	// requeue makes pending messages of locked poisoned ones, in the order in which
	// producers insert them, so that the two cannot deadlock.
	requeue(ctx context.Context, tx bun.Tx, rows []Poisoned, how Requeuing) (written []pendingKey, err error)
	// freeKeys tells which of the sorted keys no pending message has, and where that
	// locks nothing else keeps others from giving them to one until the end of the
	// transaction.
	freeKeys(ctx context.Context, tx bun.Tx, keys []pendingKey) (free map[pendingKey]bool, err error)
	deletePoisoned(ctx context.Context, db bun.IDB, ids []int64) (int, error)
	saveSchedule(ctx context.Context, db bun.IDB, row *newSchedule) (id int64, err error)

	// What people ask.

	// held selects the ids of all claimed messages, as SQL.
	held() string
	// heldClaims selects them with their claims.
	heldClaims() string
	stats(ctx context.Context, db bun.IDB, consumers []string) ([]queueStats, error)
	storedConsumers(ctx context.Context, db bun.IDB) (names []string, err error)

	// The event log.

	// events is an error, an errors.ErrUnsupported, where there is no event log.
	events() error
	// insertEvents writes the rows in their order and fills in their sequence numbers.
	insertEvents(ctx context.Context, tx bun.IDB, rows []*NewEvent) error
	// number gives places to committed events and returns to how many.
	number(ctx context.Context, db *bun.DB, limit int) (int, error)
	// gate keeps an exclusive passage apart from all others until the end of the
	// transaction.
	gate(ctx context.Context, tx bun.IDB, name string, exclusive bool) error
}

// Settings is what Check found out about a database.
type Settings struct {
	// RowLocks is false where one writer locks the whole database, so that
	// several claim loops could only get in each other's way.
	RowLocks bool
	// LockWait is how long a statement waits for the write lock before it
	// fails; zero where rows are locked one by one.
	LockWait time.Duration
}
