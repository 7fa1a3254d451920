package dialect

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
)

// Dialect is all that differs between databases. Methods that store.Store has under the same name
// are described there.
type Dialect interface {
	Direct

	// The database.

	// Tables returns the names for its statements, and what is fixed about the database.
	Tables() Names
	// Migrating runs fn in a transaction that keeps other instances from
	// migrating, with the table of migrations in place.
	Migrating(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) error
	// Literals returns an error for settings under which text could end its literal, since bun
	// writes values into the statements. It is part of Check.
	Literals(ctx context.Context, db bun.IDB) error

	// Messages that are produced.

	// Ranks returns places for messages with keys, each behind all existing ones. It returns none
	// where messages are written in the order of the call.
	Ranks(ctx context.Context, db bun.IDB, n int) ([]int64, error)
	Insert(ctx context.Context, db bun.IDB, rows []NewMessage) error
	// MessageIDs reserves ids for InsertAs. It returns none if the role may not.
	MessageIDs(ctx context.Context, db bun.IDB, n int) (handoff.IDs, error)
	// InsertAs inserts at most MostHandedOff plain rows under reserved ids. planned means that the
	// transaction is of BeginProducing, on a connection that has planned statements. It returns false,
	// and has written nothing, if the transaction uses another table than the one the ids are of.
	InsertAs(ctx context.Context, tx bun.Tx, rows []NewMessage, ids handoff.IDs, planned bool) (bool, error)
	// InsertKeyed leaves out rows whose insert id is pending, and returns the
	// message ids of the others.
	InsertKeyed(ctx context.Context, db bun.IDB, rows []NewMessage) ([]uuid.UUID, error)
	// Replace inserts rows in place of those pending with their insert ids, in the order in which
	// producers lock them. All have one DebounceMax, and no two have the same key.
	Replace(ctx context.Context, db bun.IDB, rows []NewMessage) error
	// Withdraw deletes those of the rows that were inserted and returns their message ids.
	Withdraw(ctx context.Context, db bun.IDB, rows []NewMessage) ([]uuid.UUID, error)
	// Supersede deletes the pending messages with these keys, claimed or not, in the order in which
	// producers lock them. It returns the deleted ones.
	Supersede(ctx context.Context, tx bun.IDB, keys []PendingKey) ([]Superseded, error)

	// Messages of other services.

	// Receive stores hashes, in hex, sorted and distinct, and returns those not stored before. It
	// waits for a hash that another transaction is writing.
	Receive(ctx context.Context, tx bun.IDB, receiver string, hashes []string) (added []string, err error)

	// Claims.

	// Claim is store.ClaimStore.Claim without the request's Stuck.
	Claim(ctx context.Context, db *bun.DB, r ClaimRequest) (Claim, error)
	// PollLanes looks for messages to claim for keyed consumers. With crashed it also looks for
	// crashed messages and for when the next are due.
	PollLanes(ctx context.Context, db bun.IDB, looks []LaneLook, crashed bool) ([]LaneState, error)
	// KeyedConsumers lists the consumer types of messages with keys.
	KeyedConsumers(ctx context.Context, db bun.IDB) (names []string, err error)
	// Poll looks for due and clean messages, and for more if the extent says so.
	Poll(ctx context.Context, db bun.IDB, wants []Want, extent PollExtent) (Poll, error)

	// Outcomes.

	Finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []Finished, err error)
	// Settle also writes what results keep. It fails if another transaction keeps a message locked. With
	// freeOnly it leaves locked messages out, if it can detect them.
	Settle(ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []Result, freeOnly bool) (Settled, error)
	// BeginProducing begins a transaction whose messages may be handed off to a processor, or returns an
	// errors.ErrUnsupported.
	BeginProducing(ctx context.Context, db *bun.DB) (RunTx, error)
	// HandOff claims messages that the transaction has inserted, all or none. Their order is that of
	// their ids. After an error the transaction is as before, or lost.
	HandOff(ctx context.Context, tx bun.Tx, h HandOff) (bool, error)
	// InsertHandOff inserts rows with a claim of all of them in one statement. If a consumer is paused,
	// it writes no claim. It fails for ids of another origin.
	InsertHandOff(ctx context.Context, db *bun.DB, rows []NewMessage, ids handoff.IDs, h HandOff) (claimed bool, err error)
	Disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error

	// Leases.

	Extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error)
	Recover(ctx context.Context, db bun.IDB, maxCrashes int) (Recovered, error)
	Unhandled(ctx context.Context, db bun.IDB, wants []Want) ([]Unhandled, error)

	// Consumers with a transaction.

	BeginRun(ctx context.Context, db *bun.DB) (RunTx, error)
	Fence(ctx context.Context, tx bun.IDB, f Fence) (held []int64, err error)
	// AddStep adds a line to the steps of a claimed message, in one statement, unless the message is
	// in another state than when the owner claimed it.
	AddStep(ctx context.Context, db bun.IDB, owner string, m Fenced, line string) (held bool, err error)
	// Interrupt ends the current statement of a transaction. It spares a session that is in another
	// transaction by now.
	Interrupt(ctx context.Context, db *bun.DB, session Session, ended time.Time) error
	// Savepoint sets the [Savepoint] again. It returns an error if the fenced transaction has ended
	// and later statements would commit by themselves.
	Savepoint(ctx context.Context, tx bun.IDB) error
	// Remove deletes messages of the session's transaction and returns how many.
	Remove(ctx context.Context, tx bun.IDB, session Session, ids []int64) (int, error)

	// What is kept for a time.

	// Trim deletes the oldest of some rows and returns how many.
	Trim(ctx context.Context, db bun.IDB, t Trimmed, limit int) (int, error)

	// What people change.

	// LockPending locks messages that no other transaction has locked. callers means that the
	// transaction is a caller's.
	LockPending(ctx context.Context, tx bun.Tx, callers bool, ids []int64) (locked []int64, err error)
	// ChangeLocked deletes locked messages that are in no claim, or makes them due.
	ChangeLocked(ctx context.Context, tx bun.Tx, ids []int64, due string) ([]ChangedRow, error)
	// Requeue turns locked poisoned messages into pending ones and returns these. It goes in the
	// order in which producers insert, so that the two cannot deadlock. It leaves out messages
	// whose insert id is already pending.
	Requeue(ctx context.Context, tx bun.Tx, rows []Poisoned, how Requeuing) (written []Requeued, err error)
	// FreeKeys returns which of the sorted keys no pending message has. Where that locks nothing
	// else, it keeps others from inserting them until the end of the transaction.
	FreeKeys(ctx context.Context, tx bun.Tx, keys []PendingKey) (free map[PendingKey]bool, err error)
	DeletePoisoned(ctx context.Context, db bun.IDB, ids []int64) (int, error)
	// InsertID runs a statement that inserts a row and returns the id of the row.
	InsertID(ctx context.Context, db bun.IDB, statement string, args ...any) (id int64, err error)
	// SaveSchedule takes the columns of InsertSchedule.
	SaveSchedule(ctx context.Context, db bun.IDB, columns []any) (id int64, err error)

	// What people ask.

	Stats(ctx context.Context, db bun.IDB, consumers []string) ([]QueueStats, error)
	StoredConsumers(ctx context.Context, db bun.IDB) (names []string, err error)
	// PoisonGroups returns the groups of poisoned messages, of a consumer or of all, by consumer,
	// with one index lookup each. It gives up after most groups: then whole is false.
	PoisonGroups(ctx context.Context, db bun.IDB, consumer string, most int) (groups []GroupKey, whole bool, err error)

	// Diagnose looks at a part of the live database and changes nothing.
	Diagnose(ctx context.Context, db bun.IDB, part Vital) (Diagnosis, error)

	// The event log.

	// InsertEvents writes the rows in their order and fills in their sequence numbers.
	InsertEvents(ctx context.Context, tx bun.IDB, rows []*NewEvent) error
}

// Direct is what callers of the store get unchanged from the dialect.
type Direct interface {
	// Server returns which server this is, by statements that other servers understand, too.
	Server(ctx context.Context, db bun.IDB) (Server, error)
	// Check returns an error for settings of the live database under which the library cannot keep
	// its promises, and the settings that the processor needs.
	Check(ctx context.Context, db bun.IDB) (Settings, error)
	// Unprepared reports whether statements that were to be prepared are sent as text, because a
	// pooler loses prepared ones.
	Unprepared() bool
	// HandsOff reports whether the transaction of a producer can claim its messages.
	HandsOff() bool
	// Intact checks, before a fenced transaction commits, that its work since the fence is still
	// there. Afterwards no savepoint is left.
	Intact(ctx context.Context, tx bun.IDB) error
	// Usable reports whether the transaction could still commit: its connection works, and no
	// statement has aborted it.
	Usable(ctx context.Context, tx bun.IDB) bool
	// Priorities returns an errors.ErrUnsupported if messages have no priorities.
	Priorities() error
	// AnyOrder returns an errors.ErrUnsupported if messages with keys run in order only, and keys
	// have no rates.
	AnyOrder() error
	// Supersedes returns an errors.ErrUnsupported if pending messages cannot be replaced, nor
	// insert ids stay taken.
	Supersedes() error
	// Events returns an errors.ErrUnsupported if there is no event log.
	Events() error
	// AssignPositions gives places to at most limit committed events without one, in the order of their
	// sequence numbers, and returns how many. It does nothing while another process numbers.
	AssignPositions(ctx context.Context, db *bun.DB, limit int) (int, error)
	// AdvisoryLock locks a name until the end of the transaction: shared with other transactions,
	// or exclusively.
	AdvisoryLock(ctx context.Context, tx bun.IDB, name string, exclusive bool) error
}

// Trimmed selects rows that are deleted in parts.
type Trimmed struct {
	Table, Key, Where, OldestBy string
	Index                       string // which has them in that order
	Args                        []any  // of Where
}

// Settings is what Check found out about a database.
type Settings struct {
	// RowLocks is false if one writer locks the whole database: several claim loops would only
	// block each other.
	RowLocks bool
	// LockWait is how long a statement waits for the write lock before it
	// fails; zero where rows are locked one by one.
	LockWait time.Duration
}
