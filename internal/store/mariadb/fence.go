package mariadb

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// fenceSQL gives up after a second. MySQL waits as long as innodb_lock_wait_timeout.
const fenceSQL = fenceRowsSQL + ` /*M! WAIT 1 */`

// fenceFreeSQL is for several messages: one that is locked must not hold up the others.
const fenceFreeSQL = fenceRowsSQL + ` SKIP LOCKED`

const fenceRowsSQL = `SELECT m.id, m.attempts, m.crashes FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE`

const claimsSQL = `SELECT id, message_ids, CONNECTION_ID() AS pid, DATABASE() AS path FROM {claims} WHERE id IN (?) AND owner = ?`

// fencePoint marks that the transaction in which messages were fenced is still the same. A deadlock
// ends a transaction here, and so does a statement that changes a table; later statements would be
// written outside of any.
const fencePoint = dialect.Savepoint

// Fence locks the messages and then reads their claims. It sees what was committed before the
// locks, and after that the messages cannot be claimed.
func (m *database) Fence(ctx context.Context, tx bun.IDB, f dialect.Fence) ([]int64, error) {
	begun := time.Now()
	var ids, claims []int64
	for _, msg := range f.Messages {
		ids, claims = append(ids, msg.ID), append(claims, msg.Claim)
	}
	type state struct {
		ID                int64
		Attempts, Crashes int
	}
	var locked []state
	statement := fenceSQL
	if len(ids) > 1 {
		statement = fenceFreeSQL
	}
	if err := m.Query(ctx, tx, statement, dialect.Ordered(ids)).Scan(ctx, &locked); err != nil {
		return nil, err
	}
	var live []struct {
		dialect.Leased `bun:",extend"`
		PID            int64  `bun:"pid"`
		Path           string `bun:"path"`
	}
	if err := m.Query(ctx, tx, claimsSQL, bun.List(claims), f.Owner).Scan(ctx, &live); err != nil {
		return nil, err
	}
	var held []int64
	for _, msg := range f.Messages {
		if !slices.Contains(locked, state{msg.ID, msg.Attempts, msg.Crashes}) {
			continue
		}
		for _, c := range live {
			if c.ID == msg.Claim && slices.Contains(c.MessageIDs, msg.ID) {
				held = append(held, msg.ID)
			}
		}
	}
	if f.Session != nil && len(live) > 0 {
		*f.Session = dialect.Session{PID: live[0].PID, Begun: begun.UnixMicro(), Path: live[0].Path}
	}
	if len(held) == 0 {
		return nil, nil
	}
	_, err := tx.NewRaw(`SAVEPOINT ` + fencePoint).Exec(ctx)
	return held, err
}

// Intact returns an error if the transaction is not that of the fence any more.
func (m *database) Intact(ctx context.Context, tx bun.IDB) error {
	if _, err := tx.NewRaw(`RELEASE SAVEPOINT ` + fencePoint).Exec(ctx); err != nil {
		return fmt.Errorf("the transaction ended early, by the function, a deadlock or a statement that commits: %w", err)
	}
	return nil
}

// Savepoint moves the savepoint of the fence. To set one succeeds outside of any transaction, to
// release it does not.
func (m *database) Savepoint(ctx context.Context, tx bun.IDB) error {
	if err := m.Intact(ctx, tx); err != nil {
		return err
	}
	_, err := tx.NewRaw(`SAVEPOINT ` + fencePoint).Exec(ctx)
	return err
}

// Remove finds nothing once a function has changed to another database, where tables of the same
// names may exist.
func (m *database) Remove(ctx context.Context, db bun.IDB, session dialect.Session, ids []int64) (int, error) {
	statement, args := deleteSQL, []any{dialect.Ordered(ids)}
	if session.Path != "" {
		statement, args = statement+` WHERE DATABASE() = ?`, append(args, session.Path)
	}
	return m.Changed(ctx, db, statement, args...)
}

// Usable reports whether a transaction is still open.
func (m *database) Usable(ctx context.Context, tx bun.IDB) bool {
	var open []int
	err := tx.NewRaw(`SELECT 1 FROM DUAL WHERE /*M! @@in_transaction = 1 AND */ TRUE`).Scan(ctx, &open)
	return err == nil && len(open) == 1
}

// busySQL returns the current statement of a session, and for how long it runs. Sessions of the
// same user are visible without a privilege. MySQL can return neither.
const busySQL = `SELECT /*M! QUERY_ID + */ 0 AS id, /*M! TIME_MS + */ 0 AS busy FROM information_schema.PROCESSLIST WHERE ID = ? AND COMMAND <> 'Sleep'`

// Interrupt ends one statement by its id, which is never reused. The statement is the transaction's
// if it began before the transaction ended: until then its session could not be used otherwise. A
// statement older than the transaction is not its own, for example after a failover.
func (m *database) Interrupt(ctx context.Context, db *bun.DB, session dialect.Session, ended time.Time) error {
	var statements []struct {
		ID   int64
		Busy float64 // milliseconds
	}
	if err := db.NewRaw(busySQL, session.PID).Scan(ctx, &statements); err != nil {
		return err
	}
	for _, s := range statements {
		busy := time.Duration(s.Busy * float64(time.Millisecond))
		if s.ID == 0 || busy < time.Since(ended) || busy > time.Since(time.UnixMicro(session.Begun)) {
			continue
		}
		_, err := db.NewRaw(`/*M! KILL QUERY ID ? */`, s.ID).Exec(ctx)
		if number, _ := dberr.MySQLError(err); err != nil && number != dberr.MySQLUnknownQuery {
			return err
		}
	}
	return nil
}
