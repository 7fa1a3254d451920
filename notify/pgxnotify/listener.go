package pgxnotify

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrPooler is returned by [Listener.Listen] when it is connected through a connection pooler, such
// as pgbouncer. In transaction mode a pooler accepts LISTEN, but delivers notifications to any
// client or to none. Give the listener the address of the server itself, with [New]; the
// application may use the pooler.
var ErrPooler = errors.New("pgxnotify: the connection goes through a pooler: LISTEN needs a direct connection to the server")

// closeTimeout limits the time to close the connection.
const closeTimeout = time.Second

// Listener is a notify.Listener with a connection of its own. Make one with [New]
// or [FromDB]. It is safe for concurrent use.
type Listener struct {
	config func(ctx context.Context) (*pgx.ConnConfig, error)
}

// New makes a listener that connects with config, which must come from pgx.ParseConfig.
func New(config *pgx.ConnConfig) *Listener {
	config = config.Copy()
	return &Listener{config: func(context.Context) (*pgx.ConnConfig, error) { return config.Copy(), nil }}
}

// FromDB makes a listener that connects like the connections of db, which must use pgx's package
// stdlib. A *bun.DB has its *sql.DB in the field DB. The listener has a connection of its own,
// outside of the pool. Each time it connects, it copies the configuration of a pooled connection,
// with what a BeforeConnect has set there, such as a password that changes.
func FromDB(db *sql.DB) *Listener {
	return &Listener{config: func(ctx context.Context) (*pgx.ConnConfig, error) { return configOf(ctx, db) }}
}

// configOf returns the configuration of a pooled connection.
func configOf(ctx context.Context, db *sql.DB) (config *pgx.ConnConfig, err error) {
	if db == nil {
		return nil, errors.New("the database handle is nil")
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connection of the pool: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	err = conn.Raw(func(c any) error {
		for {
			switch layer := c.(type) {
			case interface{ Conn() *pgx.Conn }: // *stdlib.Conn
				config = layer.Conn().Config()
				return nil
			case interface{ Raw() driver.Conn }: // instrumentation, such as otelsql's
				c = layer.Raw()
			default:
				return fmt.Errorf("the driver's connection is a %T: a connection of pgx/v5/stdlib is needed", c)
			}
		}
	})
	return config, err
}

// Listen implements notify.Listener.
func (l *Listener) Listen(ctx context.Context, channel string, listening func(), received func(text string)) (err error) {
	config, err := l.config(ctx)
	if err != nil {
		return fmt.Errorf("pgxnotify: %w", err)
	}
	config.OnNotification = nil // so that they come to us
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return fmt.Errorf("pgxnotify: connect: %w", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = conn.Close(ctx) // why we leave is what matters
	}()
	if err := direct(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("pgxnotify: listen: %w", err)
	}
	listening()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("pgxnotify: wait: %w", err)
		}
		received(n.Payload)
	}
}

// direct makes sure that nothing but the server answers: a pooler invents the
// process id that it sends a client at first.
func direct(ctx context.Context, conn *pgx.Conn) error {
	var pid uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	switch {
	case err != nil:
		return fmt.Errorf("pgxnotify: ask for the process id: %w", err)
	case pid != conn.PgConn().PID():
		return ErrPooler
	}
	return nil
}
