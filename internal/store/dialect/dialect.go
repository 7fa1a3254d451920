package dialect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
)

// Dialect is all that differs between databases. What store.Store has under the same name is
// described there.
type Dialect interface {
	Direct

	// The database.

	// Tables are the names that its statements have, and what is fixed about it.
	Tables() Names
	// Migrating runs fn in a transaction that keeps other instances from
	// migrating, with the table of migrations in place.
	Migrating(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) error
	// Literals reports settings under which text could end its literal, since bun writes
	// values into the statements. It is part of check.
	Literals(ctx context.Context, db bun.IDB) error

	// Messages that are produced.

	// Ranks returns places for messages with keys, each behind all that there are, or none
	// where messages are written in the order of the call.
	Ranks(ctx context.Context, db bun.IDB, n int) ([]int64, error)
	Insert(ctx context.Context, db bun.IDB, rows []NewMessage) error
	// InsertKeyed leaves out rows whose insert id is pending, and returns the
	// message ids of the others.
	InsertKeyed(ctx context.Context, db bun.IDB, rows []NewMessage) ([]uuid.UUID, error)
	// Replace inserts rows in the place of those that are pending with their insert ids, in
	// the order in which producers lock them. All have one DebounceMax, and no two one key.
	Replace(ctx context.Context, db bun.IDB, rows []NewMessage) error
	// Withdraw deletes those of the rows that were inserted, and returns their message ids.
	Withdraw(ctx context.Context, db bun.IDB, rows []NewMessage) ([]uuid.UUID, error)
	// Supersede deletes the pending messages with these keys, claimed or not, in the order
	// in which producers lock them, and returns what they were.
	Supersede(ctx context.Context, tx bun.IDB, keys []PendingKey) ([]Superseded, error)

	// Messages of other services.

	// Receive remembers hashes, in hex, sorted and each once, and returns those that were not
	// remembered yet. One that somebody else is writing is waited for.
	Receive(ctx context.Context, tx bun.IDB, receiver string, hashes []string) (added []string, err error)

	// Claims.

	// Claim is store.Store.Claim, but for what its Stuck says.
	Claim(ctx context.Context, db *bun.DB, r ClaimRequest) (Claim, error)
	// ProbeLanes looks for what there is to claim for consumers that go by keys; with crashed,
	// for messages that have crashed, and when the next are due, too.
	ProbeLanes(ctx context.Context, db bun.IDB, looks []LaneLook, crashed bool) ([]LaneState, error)
	// KeyedConsumers lists the consumer types of messages with keys.
	KeyedConsumers(ctx context.Context, db bun.IDB) (names []string, err error)
	// Probe looks for what is due and clean; with all, for everything else as well.
	Probe(ctx context.Context, db bun.IDB, wants []Want, all bool) (Probe, error)

	// Outcomes.

	Finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []Finished, err error)
	// Settle gives up when somebody else keeps a message locked. With freeOnly it leaves
	// those out, where it can tell.
	Settle(ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []Result, freeOnly bool) (Settled, error)
	Disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error

	// Leases.

	Extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error)
	Recover(ctx context.Context, db bun.IDB, maxCrashes int) (Recovered, error)
	Unhandled(ctx context.Context, db bun.IDB, wants []Want) ([]Unhandled, error)

	// Consumers with a transaction.

	Fence(ctx context.Context, tx bun.IDB, f Fence) (held []int64, err error)
	// Interrupt ends the statement that a transaction is in, and spares a session
	// that is in another transaction by now.
	Interrupt(ctx context.Context, db *bun.DB, session Session, ended time.Time) error
	// Remove deletes messages of the session's transaction and returns how many.
	Remove(ctx context.Context, tx bun.IDB, session Session, ids []int64) (int, error)

	// What is kept for a time.

	// Trim deletes the oldest of some rows, and returns how many.
	Trim(ctx context.Context, db bun.IDB, t Trimmed, limit int) (int, error)

	// What people change.

	// LockPending locks messages that nobody else has locked; callers says whose
	// transaction it is.
	LockPending(ctx context.Context, tx bun.Tx, callers bool, ids []int64) (locked []int64, err error)
	// ChangeLocked deletes locked messages that no claim has, or makes them due.
	ChangeLocked(ctx context.Context, tx bun.Tx, ids []int64, due string) ([]ChangedRow, error)
	// Requeue makes pending messages of locked poisoned ones, in the order in which
	// producers insert them, so that the two cannot deadlock, and returns these. Where an
	// insert id is pending already there is none.
	Requeue(ctx context.Context, tx bun.Tx, rows []Poisoned, how Requeuing) (written []Requeued, err error)
	// FreeKeys tells which of the sorted keys no pending message has, and where that
	// locks nothing else keeps others from giving them to one until the end of the
	// transaction.
	FreeKeys(ctx context.Context, tx bun.Tx, keys []PendingKey) (free map[PendingKey]bool, err error)
	DeletePoisoned(ctx context.Context, db bun.IDB, ids []int64) (int, error)
	// InsertID runs a statement that inserts a row, and returns the id that it was given.
	InsertID(ctx context.Context, db bun.IDB, statement string, args ...any) (id int64, err error)
	// SaveSchedule takes the columns of InsertSchedule.
	SaveSchedule(ctx context.Context, db bun.IDB, columns []any) (id int64, err error)

	// What people ask.

	Stats(ctx context.Context, db bun.IDB, consumers []string) ([]QueueStats, error)
	StoredConsumers(ctx context.Context, db bun.IDB) (names []string, err error)
	// PoisonGroups lists the groups of poisoned messages, of a consumer or of all, by consumer, with a
	// look at an index for each. After so many it gives up: then they are not the whole.
	PoisonGroups(ctx context.Context, db bun.IDB, consumer string, most int) (groups []GroupKey, whole bool, err error)

	// Diagnose looks at a part of the live database, and changes nothing.
	Diagnose(ctx context.Context, db bun.IDB, part Vital) (Diagnosis, error)

	// The event log.

	// InsertEvents writes the rows in their order and fills in their sequence numbers.
	InsertEvents(ctx context.Context, tx bun.IDB, rows []*NewEvent) error
}

// Direct is what callers of the store are given as the database has it.
type Direct interface {
	// Server tells which server this is, in statements that others understand, too.
	Server(ctx context.Context, db bun.IDB) (Server, error)
	// Check reports settings of the live database under which the library cannot keep its
	// promises, and what the processor needs to know of the others.
	Check(ctx context.Context, db bun.IDB) (Settings, error)
	// Unprepared tells whether statements that were to be prepared are sent as text, since a
	// pooler loses them.
	Unprepared() bool
	// Intact makes sure, before a fenced transaction is committed, that what it has done
	// since the fence is still there. Afterwards no savepoint is left.
	Intact(ctx context.Context, tx bun.IDB) error
	// Usable asks the transaction whether it could still commit: its connection stands,
	// and no statement has aborted it.
	Usable(ctx context.Context, tx bun.IDB) bool
	// Priorities is an error, an errors.ErrUnsupported, where messages have none.
	Priorities() error
	// AnyOrder is an error, an errors.ErrUnsupported, where messages with keys run in order
	// only, and keys have no rates.
	AnyOrder() error
	// Supersedes is an error, an errors.ErrUnsupported, where pending messages cannot be
	// replaced, nor insert ids stay taken.
	Supersedes() error
	// Events is an error, an errors.ErrUnsupported, where there is no event log.
	Events() error
	// Number gives places to committed events that have none, in the order of their
	// sequence numbers, at most limit of them, and returns to how many. When somebody
	// else is at it there is nothing to do.
	Number(ctx context.Context, db *bun.DB, limit int) (int, error)
	// AdvisoryLock lets any number of transactions pass, or an exclusive one alone, until
	// its end.
	AdvisoryLock(ctx context.Context, tx bun.IDB, name string, exclusive bool) error
}

// Trimmed are rows that are deleted, a part of them at a time.
type Trimmed struct {
	Table, Key, Where, OldestBy string
	Index                       string // which has them in that order
	Args                        []any  // of Where
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
