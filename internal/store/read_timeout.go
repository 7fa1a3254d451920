package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// ErrLate is returned if the server cancelled a read.
var ErrLate = errors.New("the database took too long")

// Briefly runs reads, each of which the server cancels after a time with [ErrLate]. A context alone
// ends only the wait while the server goes on. Where the database runs in this process, the context
// is enough.
func (s *Store) Briefly(ctx context.Context, db *bun.DB, each time.Duration, reads func(db bun.IDB) error) error {
	err := dberr.Explained(s.briefly(ctx, db, each, reads))
	if dberr.ClassOf(err) == dberr.Timeout && dberr.Answered(err) {
		return fmt.Errorf("%w: %w", ErrLate, err)
	}
	return err
}

func (s *Store) briefly(ctx context.Context, db *bun.DB, each time.Duration, reads func(db bun.IDB) error) error {
	switch {
	case s.names.Within != "":
		return txn.RunInTx(
			ctx,
			db,
			&sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: true},
			func(ctx context.Context, tx bun.Tx) error {
				if err := s.within(ctx, tx, each); err != nil {
					return err
				}
				return reads(tx)
			},
		)
	case s.names.Brief != "":
		return s.inBriefSession(ctx, db, each, reads)
	default:
		return reads(db)
	}
}

// inBriefSession is for servers where only a session has such a bound. It would bound a COMMIT as
// well, so the session gets its old bound back, or is given up.
func (s *Store) inBriefSession(ctx context.Context, db *bun.DB, each time.Duration, reads func(db bun.IDB) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var before float64
	if err := conn.NewRaw(`SELECT @@`+s.names.Brief).Scan(ctx, &before); err != nil {
		return reads(conn) // the server has no such setting
	}
	set := func(ctx context.Context, seconds float64) error {
		_, err := conn.NewRaw(`SET SESSION `+s.names.Brief+` = ?`, seconds).Exec(ctx)
		return err
	}
	defer func() {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		defer cancel()
		if set(within, before) != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}()
	if err := set(ctx, each.Seconds()); err != nil {
		return err
	}
	return reads(conn)
}
