package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/pgxtx"
)

// Order is what a customer sees. The instants are zero until the step is done.
type Order struct {
	bun.BaseModel `bun:"table:orders"`

	ID        string    `bun:"id,pk" json:"id"`
	Item      string    `bun:"item" json:"item"`
	PlacedAt  time.Time `bun:"placed_at,nullzero" json:"placed_at"`
	Reserved  time.Time `bun:"reserved_at,nullzero" json:"reserved_at,omitzero"`
	ChargedAt time.Time `bun:"charged_at,nullzero" json:"charged_at,omitzero"`
	ShippedAt time.Time `bun:"shipped_at,nullzero" json:"shipped_at,omitzero"`
}

// Stock is how many of an item are reserved.
type Stock struct {
	bun.BaseModel `bun:"table:stock"`

	Item     string `bun:"item,pk"`
	Reserved int    `bun:"reserved"`
}

// Charge stands for the payment provider, which refuses to charge a key twice.
type Charge struct {
	bun.BaseModel `bun:"table:charges"`

	Key     string `bun:"key,pk"` // the message's id
	OrderID string `bun:"order_id"`
}

// newDB opens the database. Everything that uses it is made after it, so its hook
// makes the application's tables before, and closes it after, everything else.
func newDB(lifecycle fx.Lifecycle, s settings, pool *pgxpool.Pool) (*bun.DB, error) {
	var open func(dsn string) (*bun.DB, error)
	switch scheme, _, _ := strings.Cut(s.dsn, "://"); scheme {
	case "postgres", "postgresql":
		open = openPostgres
		if pool != nil {
			open = func(string) (*bun.DB, error) { return bun.NewDB(pgxtx.Open(pool), pgdialect.New()), nil }
		}
	case "mysql":
		open = openMariaDB
	default: // which is not printed: it may have a password
		return nil, errors.New(
			"-dsn: want postgres://user@host/database or mysql://user@host/database (for a socket, mysql://user@/database?socket=/path)",
		)
	}
	db, err := open(s.dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(20) // the processor needs 11 of them
	lifecycle.Append(fx.StartStopHook(func(ctx context.Context) error { return createTables(ctx, db) }, db.Close))
	return db, nil
}

func openPostgres(dsn string) (*bun.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // bun writes values into the SQL: nothing to cache
	return bun.NewDB(stdlib.OpenDB(*config), pgdialect.New()), nil
}

// openMariaDB takes mysql://user:password@host:port/database, or, for a server on
// this machine, mysql://user@/database?socket=/path.
func openMariaDB(dsn string) (*bun.DB, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	config := mysql.NewConfig()
	config.User, config.DBName, config.ParseTime = u.User.Username(), strings.TrimPrefix(u.Path, "/"), true
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr = "tcp", u.Host
	if socket := u.Query().Get("socket"); socket != "" {
		config.Net, config.Addr = "unix", socket
	} else if u.Port() == "" {
		config.Addr = net.JoinHostPort(u.Hostname(), "3306")
	}
	config.Timeout, config.ReadTimeout = 5*time.Second, time.Minute
	config.Params = map[string]string{"idle_transaction_timeout": "60"}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return bun.NewDB(sql.OpenDB(connector), mysqldialect.New()), nil
}

// createTables makes the application's own tables.
func createTables(ctx context.Context, db *bun.DB) error {
	for _, model := range []any{(*Order)(nil), (*Stock)(nil), (*Charge)(nil)} {
		if _, err := db.NewCreateTable().Model(model).IfNotExists().Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}
