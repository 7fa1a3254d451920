package contender

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/bench/internal/broker"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Pool is the number of connections of every contender's pool.
const Pool = 20

// Work is what a contender does with messages.
type Work struct {
	// Handle is the handler: it is called at the start of every run, with the
	// decoded payload, by many goroutines.
	Handle func(Signup)
	// Fail is told of a failure in the background, which ends the measurement.
	Fail func(error)
	// Transactional makes every run insert one row into the table Effects, in
	// the transaction that completes the message.
	Transactional bool
	// Wire counts what goes to PostgreSQL. Nil does not.
	Wire *Wire
	// Place is where relays put messages, and receivers take them from.
	Place broker.Address
}

// System is a contender at work in one database. One goroutine uses it at a
// time, but for ProduceOne, which any number may call.
type System interface {
	// Produce writes a batch in the way that is the contender's fastest: all of
	// it is committed when Produce returns.
	Produce(ctx context.Context, batch []Signup) error
	// ProduceOne writes one message in a transaction of its own, as an
	// application does that writes something else in it, too.
	ProduceOne(ctx context.Context, payload Signup) error
	// Start begins to consume. The stop it returns ends that, and waits for what
	// runs.
	Start(ctx context.Context) (stop func() error, err error)
	// Pending reports whether messages remain that are not settled. It looks at
	// the last ones only, and so costs next to nothing beside a measurement.
	Pending(ctx context.Context) (bool, error)
	// Verify fails when anything at all remains, or has failed for good.
	Verify(ctx context.Context) error
	// Close closes the connections.
	Close() error
}

// Contender is a message system that can be measured.
type Contender struct {
	// Name is what the contender is called in the output.
	Name string
	// Open installs the contender in an empty database, or connects to a
	// database in which that was done before.
	Open func(ctx context.Context, dsn string, work Work) (System, error)
}

// Idle is a process of ours as it stands about in production: with 20 consumers and 20 schedules, or with so
// many tenants.
func Idle(tenants int, tracer pgx.QueryTracer) Contender {
	if tenants > 0 {
		return Tenants(tenants, tracer)
	}
	return Ours("ours-idle", Variant{Consumers: 20, Schedules: 20, Tracer: tracer})
}

// Names of the contenders.
const (
	NameOurs          = "ours"
	NameOursGrouped   = "ours-grouped"
	NameOursNotify    = "ours-notify" // with package notify: what across processes is about
	NameRiver         = "river"
	NameRiverDefaults = "river-defaults"
	NameWatermill     = "watermill"
	NameRaw           = "raw"

	// Those of relays.
	NameOursRelay   = "ours-relay"    // messages to a broker; with package notify
	NameOursReceive = "ours-receiver" // messages from a broker
	NameForwarder   = "watermill-forwarder"
)

// All returns the contenders. A variant of ours gets its line here, and a name
// above; [Variant] says what it may change.
func All() []Contender {
	return []Contender{
		Ours(NameOurs, Variant{}),
		Ours(NameOursGrouped, Variant{TxOptions: []bus.ConsumerOption{outbox.GroupCommit(50)}}),
		Ours(NameOursNotify, Variant{Notify: true}),
		River(NameRiver, Tuned()),
		River(NameRiverDefaults, Defaults()),
		Watermill(),
		Raw(),
		Ours(NameOursRelay, Variant{Relay: true, Notify: true}),
		Ours(NameOursReceive, Variant{Receive: true}),
		Forwarder(),
	}
}

// ByName returns a contender of All.
func ByName(name string) (Contender, error) {
	for _, c := range All() {
		if c.Name == name {
			return c, nil
		}
	}
	return Contender{}, fmt.Errorf("no contender is called %q", name)
}

const (
	// Effects is the table into which transactional work inserts. Its key makes
	// a second run of a message fail.
	Effects = "bench_effects"

	createEffects = "CREATE TABLE IF NOT EXISTS " + Effects + " (user_id bigint PRIMARY KEY, email text NOT NULL, at timestamptz NOT NULL)"
	insertEffect  = "INSERT INTO " + Effects + " (user_id, email, at) VALUES ($1, $2, $3)"

	// tail is how many of the last ids Pending looks at: more than any
	// contender has in flight.
	tail = 20_000
)

// logger prints what goes wrong; what goes well is a line per message for some.
func logger() *slog.Logger { return loggerOf(slog.LevelWarn) }

func loggerOf(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// openPool opens a pgx pool with the driver's default query mode: the one in the
// DSN is for Bun, which writes values into the SQL.
func openPool(ctx context.Context, dsn string, wire *Wire) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("data source name: %w", err)
	}
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	config.MaxConns = Pool
	wire.count(config.ConnConfig)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open pool: %w", err)
	}
	return pool, nil
}
