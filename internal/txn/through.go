package txn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/schema"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Through calls fn with a user's handle as one of Bun's. A transaction that is not Bun's stays its
// owner's to commit. Its dialect is its own, if it has a method Dialect, or else the given one.
func Through(ctx context.Context, h bus.Handle, dialect schema.Dialect, fn func(db bun.IDB) error) error {
	if db, ok := h.(bun.IDB); ok || h == nil {
		return explained(h, fn(db))
	}
	if d, ok := h.(interface{ Dialect() schema.Dialect }); ok {
		dialect = d.Dialect()
	}
	switch v := reflect.ValueOf(h); {
	case v.Kind() == reflect.Pointer && v.IsNil():
		return fmt.Errorf("the database handle is a nil %T", h)
	case isZero(h):
		return errors.New("the database handle is a zero sql.Tx: begin it with a database")
	}
	if err := CheckEnds(h); err != nil {
		return err
	}
	if dialect == nil {
		return fmt.Errorf("a %T needs bus.RegistryConfig.Dialect", h)
	}
	seen, err := template(dialect)
	if err != nil {
		return err
	}
	tx, ok := h.(*sql.Tx)
	if !ok {
		guest, err := newGuest(ctx, h)
		if err != nil {
			return err
		}
		defer guest.end()
		tx = guest.tx
	}
	seen.Tx = tx // methods of bun.Tx write to the embedded transaction
	return explained(h, fn(seen))
}

// CheckEnds returns an error for a pool that is not Bun's, which may be nil.
func CheckEnds(h bus.Handle) error {
	switch h.(type) {
	case nil, bun.IDB, interface {
		Commit() error
		Rollback() error
	}:
		return nil
	}
	return fmt.Errorf("the database handle is a %T: a transaction, or a handle of Bun, is allowed", h)
}

// explained adds to an error of database/sql what it can mean in a transaction. Drivers return it
// while rows are open, too.
func explained(h bus.Handle, err error) error {
	if _, pool := h.(*bun.DB); pool || !errors.Is(err, driver.ErrBadConn) {
		return err
	}
	return fmt.Errorf("%w: the connection is lost, or rows of the transaction are open", err)
}

// isZero reports whether a handle is a *sql.Tx made by hand, whose methods panic.
func isZero(h bus.Handle) bool {
	tx, ok := h.(*sql.Tx)
	return ok && reflect.ValueOf(tx).Elem().IsZero()
}

// templates caches a transaction of Bun without a database for each dialect. Each is immutable.
var templates sync.Map

// template returns one, for a *sql.Tx to be put into.
func template(dialect schema.Dialect) (bun.Tx, error) {
	if tx, ok := templates.Load(dialect); ok { // a dialect is a pointer
		return tx.(bun.Tx), nil
	}
	pool := sql.OpenDB(&guest{})
	tx, err := bun.NewDB(pool, known{dialect}).BeginTx(context.Background(), nil)
	if err != nil {
		return tx, errors.Join(err, pool.Close())
	}
	if err := errors.Join(tx.Rollback(), pool.Close()); err != nil {
		return tx, err
	}
	templates.Store(dialect, tx)
	return tx, nil
}

// known is a dialect that does not ask a server for its version.
type known struct{ schema.Dialect }

// Init implements schema.Dialect.
func (known) Init(*sql.DB) {}
