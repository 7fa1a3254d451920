package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// refused returns an outbox.ErrUnsupportedServer unless the library supports the server, or the
// server is only untested and that is allowed.
func refused(s dialect.Server, untested bool) error {
	switch {
	case s.Name == "" || s.Why == "" && untested:
		return nil
	case s.Why == "":
		return fmt.Errorf(
			"%w: %s, whose version() is %q, is untested: set outbox.ProcessorConfig.AllowUntestedServer to run a processor on it; the event log "+
				"is not available",
			dberr.ErrServer, s.Name, s.Said,
		)
	}
	return fmt.Errorf("%w: %s, whose version() is %q: %s", dberr.ErrServer, s.Name, s.Said, s.Why)
}

const (
	countReceived = `SELECT count(*) FROM {inbox} WHERE receiver = ?`
	dropReceived  = `DELETE FROM {inbox} WHERE receiver = ?`
)

// readsCommitted returns an error if READ COMMITTED has no effect on a server. A second statement
// of a transaction must see what was committed since the first, or messages are claimed twice. No
// setting shows that on every server, so it is tried with a row that is removed again.
func (s *SchemaStore) readsCommitted(ctx context.Context, db *bun.DB, server dialect.Server) error {
	receiver := "server-check." + rand.Text()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_, _ = s.names.Query(ctx, db, dropReceived, receiver).Exec(ctx)
	}()
	var before, after int
	err := txn.RunOwn(ctx, db, func(ctx context.Context, tx bun.Tx) error {
		if err := s.names.Query(ctx, tx, countReceived, receiver).Scan(ctx, &before); err != nil {
			return err
		}
		err := txn.InTx(ctx, db, func(beside bun.Tx) error {
			_, err := s.dialect.Receive(ctx, beside, receiver, []string{strings.Repeat("00", 32)})
			return err
		})
		if err != nil {
			return err
		}
		return s.names.Query(ctx, tx, countReceived, receiver).Scan(ctx, &after)
	})
	if err != nil {
		return fmt.Errorf("see whether READ COMMITTED is effective, with two connections: %w", err)
	}
	if after != before+1 {
		return fmt.Errorf(
			"%w: %s, whose version() is %q: READ COMMITTED is not effective: a statement does not see what was committed before it",
			dberr.ErrServer, server.Name, server.Said,
		)
	}
	return nil
}
