package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Store runs the library's statements against one kind of database. It holds no
// connection: every call is given one. It is safe for concurrent use.
type Store struct {
	engine
	names names
}

// engine is what differs between databases. Each is one file of this package.
type engine interface {
	preparer
	clock
	inserter
	claimer
	settler
	keeper
	executor
	editor
	ledgerReader
	recorder
	setup
}

// preparer makes queries of this package's statements, with their {names} filled in.
type preparer interface {
	raw(ctx context.Context, db bun.IDB, statement string, args ...any) *bun.RawQuery
}

// clock writes instants as SQL expressions.
type clock interface {
	// now is the database's clock, or the fixed instant of a test kit.
	now(ctx context.Context) string
	// after is an instant on the database's clock, d from now.
	after(ctx context.Context, d time.Duration) string
	// at is a fixed instant.
	at(t time.Time) string
}

// inserter writes messages.
type inserter interface {
	insert(ctx context.Context, db bun.IDB, rows []NewMessage) error
	// insertKeyed leaves out rows whose insert id is pending, and returns the
	// message ids of the others.
	insertKeyed(ctx context.Context, db bun.IDB, rows []NewMessage) ([]bus.MessageID, error)
}

// claimer takes messages under a lease.
type claimer interface {
	// probe looks for what is due and clean; with all, for everything else as well.
	probe(ctx context.Context, db bun.IDB, wants []Want, all bool) (Probe, error)
	claim(ctx context.Context, db *bun.DB, r ClaimRequest) (Claim, error)
}

// settler writes outcomes and gives claims back.
type settler interface {
	finish(ctx context.Context, db bun.IDB, owner string, claims []int64) (finished []Finished, err error)
	// settle gives up when somebody else keeps a message locked. With freeOnly it leaves
	// those out, where it can tell.
	settle(ctx context.Context, db bun.IDB, owner string, lease time.Duration, results []Result, freeOnly bool) (Settled, error)
	disclaim(ctx context.Context, db bun.IDB, owner string, claims []int64) error
}

// keeper looks after leases.
type keeper interface {
	extend(ctx context.Context, db bun.IDB, owner string, lease time.Duration) (held []int64, err error)
	recover(ctx context.Context, db bun.IDB, maxCrashes int) (Recovered, error)
	strangers(ctx context.Context, db bun.IDB, wants []Want) ([]Stranger, error)
}

// executor holds messages inside a consumer's transaction.
type executor interface {
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
}

// editor changes what people ask to have changed, and tells what it has changed.
type editor interface {
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
}

// ledgerReader answers questions about claims and messages.
type ledgerReader interface {
	// held selects the ids of all claimed messages, as SQL.
	held() string
	// heldClaims selects them with their claims.
	heldClaims() string
	stats(ctx context.Context, db bun.IDB, consumers []string) ([]queueStats, error)
	storedConsumers(ctx context.Context, db bun.IDB) (names []string, err error)
}

// recorder writes events and gives them their places.
type recorder interface {
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

// setup prepares and checks the database.
type setup interface {
	name() string
	traits() traits
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
}

// traits are what a database can do, or does of itself.
type traits struct {
	rowLocks bool   // it locks rows rather than itself
	notifies bool   // it can notify other processes
	readOnly string // asks whether the server takes no writes; empty where a handler that runs proves that it does
	session  string // columns of its Session, which bound, in milliseconds, how long that may idle in a transaction
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

// For returns the store for the dialect of a bun handle.
func For(d dialect.Name, tables bus.Tables) (*Store, error) {
	switch d {
	case dialect.PG:
		p := new(postgres)
		p.returning = returning{names: newNames(tables, `"`, pgWords()), dialect: p}
		return &Store{engine: p, names: p.names}, nil
	case dialect.SQLite:
		if tables.Schema != "" {
			return nil, fmt.Errorf("schema %q: SQLite has no schemas, leave Tables.Schema empty", tables.Schema)
		}
		s := new(sqlite)
		s.returning = returning{names: newNames(tables, `"`, sqliteWords()), dialect: s}
		return &Store{engine: s, names: s.names}, nil
	case dialect.MySQL:
		if tables.Schema != "" {
			return nil, fmt.Errorf("schema %q: a schema of MariaDB is a database, name it when you connect and leave Tables.Schema empty", tables.Schema)
		}
		m := &mariadb{names: newNames(tables, "`", mariaWords())}
		return &Store{engine: m, names: m.names}, nil
	}
	return nil, fmt.Errorf("dialect %q is not supported: use one of pg, sqlite, mysql", d)
}

// All returns the store of every dialect that can work with the tables, for
// callers that learn the dialect only call by call.
func All(tables bus.Tables) map[dialect.Name]*Store {
	stores := make(map[dialect.Name]*Store)
	for _, name := range []dialect.Name{dialect.PG, dialect.SQLite, dialect.MySQL} {
		if s, err := For(name, tables); err == nil {
			stores[name] = s
		}
	}
	return stores
}

// RowLocks tells whether the database locks rows rather than itself.
func (s *Store) RowLocks() bool { return s.traits().rowLocks }

// Events returns an error, an errors.ErrUnsupported, where the event log is not
// available.
func (s *Store) Events() error { return s.events() }

// Check reports settings of the live database that the library cannot work
// with, and what the processor needs to know of the others.
func (s *Store) Check(ctx context.Context, db bun.IDB) (Settings, error) { return s.check(ctx, db) }

// names are the quoted table names, and the bare prefix for index names.
type names struct {
	prefix, schema                                            string
	messages, claims, poisoned, paused, schedules, migrations string
	keys                                                      string // empty where insert ids have no table of their own
	replacer                                                  *strings.Replacer
}

// words are what dialects have each their own of, in statements that they share.
type words struct {
	place    string // the column with an event's place, NULL until it has one
	unplaced string // true of an event e that has no place yet
	last     string // the last place that is given
	once     string // asks for a named query to be evaluated once
	size     string // how many messages a claim c has
	keep     string // ends an insert that leaves a paused consumer as it is
	keys     string // the table of pending insert ids, where they have one of their own
	keyed    string // true of a pending message m with an insert id
}

// newNames quotes names with the mark of the dialect.
func newNames(t bus.Tables, mark string, w words) names {
	quote := func(name string) string {
		q := mark + t.Prefix + name + mark
		if t.Schema != "" {
			q = `"` + t.Schema + `".` + q
		}
		return q
	}
	n := names{
		prefix: t.Prefix, schema: t.Schema,
		messages: quote("consumer_messages"), claims: quote("message_claims"),
		poisoned: quote("poisoned_messages"), paused: quote("paused_consumers"),
		schedules: quote("scheduled_messages"), migrations: quote("asyncmonolith_migrations"),
	}
	if w.keys != "" {
		n.keys = quote(w.keys)
	}
	events, head := quote("events"), quote("event_head")
	last := strings.NewReplacer("{events}", events, "{head}", head).Replace(w.last)
	n.replacer = strings.NewReplacer("{place}", w.place, "{unplaced}", w.unplaced, "{last}", last,
		"{once}", w.once, "{size}", w.size, "{keep}", w.keep, "{keyed}", strings.ReplaceAll(w.keyed, "{keys}", n.keys), "{keys}", n.keys,
		"{messages}", n.messages, "{due}", quote("consumer_messages_due"), "{crashed}", quote("consumer_messages_crashed"), "{claims}", n.claims,
		"{poisoned}", n.poisoned, "{paused}", n.paused, "{schedules}", n.schedules, "{migrations}", n.migrations, "{prefix}", n.prefix,
		"{events}", events, "{streams}", quote("event_streams"), "{head}", head,
		"{subscriptions}", quote("event_subscriptions"), "{projections}", quote("event_projections"),
		"{parked}", quote("event_parked"), "{snapshots}", quote("event_snapshots"))
	return n
}

// expand fills table names into a statement of this package. Identifiers were
// validated with bus.Tables; values never pass through here.
func (n names) expand(statement string) string { return n.replacer.Replace(statement) }

// query prepares a statement of this package; now is the clock.
func (n names) query(db bun.IDB, now, statement string, args ...any) *bun.RawQuery {
	return db.NewRaw(strings.ReplaceAll(n.expand(statement), "{now}", now), args...)
}

type clockKey struct{}

// WithClock makes every statement run under the context take its time from now
// instead of the database's clock. Test kits use it.
func WithClock(ctx context.Context, now func() time.Time) context.Context {
	return context.WithValue(ctx, clockKey{}, now)
}

// fixed returns the test kit's time, if there is one.
func fixed(ctx context.Context) (time.Time, bool) {
	if now, ok := ctx.Value(clockKey{}).(func() time.Time); ok {
		return now(), true
	}
	return time.Time{}, false
}

type txKey struct{}

// WithTx hands a transaction down a chain to the layer that needs it. Users
// neither set nor read it.
func WithTx(ctx context.Context, tx bun.IDB) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// TxFrom returns the transaction that [WithTx] put into the context.
func TxFrom(ctx context.Context) (bun.IDB, bool) {
	tx, ok := ctx.Value(txKey{}).(bun.IDB)
	return tx, ok
}
