package mariadb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
)

// Insert takes two statements for messages with keys.
func (m *database) Insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) error {
	if rows[0].OrderKey == "" {
		_, err := m.insert(ctx, db, rows)
		return err
	}
	return txn.InTx(ctx, db, func(tx bun.Tx) error {
		_, err := m.insert(ctx, tx, rows)
		return err
	})
}

// insert returns the id of the first row. The others follow in their order.
func (m *database) insert(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (first int64, err error) {
	if err := checkPacket(ctx, db, rows[0]); err != nil {
		return 0, err
	}
	statement, values := m.InsertMessages(ctx, rows)
	first, err = m.InsertID(ctx, db, statement, values...)
	if err != nil || rows[0].OrderKey == "" {
		return first, err
	}
	return first, m.insertLanes(ctx, db, first, rows)
}

// checkPacket returns an error for a row that would make the server close the connection. Rows that
// may be too large are written alone.
func checkPacket(ctx context.Context, db bun.IDB, row dialect.NewMessage) error {
	const others = 64 << 10 // the rest of the statement
	size := others + len(row.Payload) + len(row.Headers)
	if 2*size <= minPacket {
		return nil
	}
	for _, text := range []string{row.Payload, row.Headers} {
		for _, c := range []byte("\\'\"\x00\n\r\x1a") { // characters that are escaped
			size += strings.Count(text, string(rune(c)))
		}
	}
	var packet int
	if err := db.NewRaw(`SELECT @@max_allowed_packet`).Scan(ctx, &packet); err != nil {
		return err
	}
	if size > packet {
		return fmt.Errorf("%w: %d bytes, and the server's max_allowed_packet is %d: raise it", bus.ErrTooLarge, size, packet)
	}
	return nil
}

// nthID is the id of a row of an insert, from the id of the first and the row's place.
const nthID = `? + ? * @@auto_increment_increment`

const insertLanesSQL = `INSERT INTO {lanes} (id, consumer_type, lane, order_key, ` + "`rank`" + `) VALUES `

// insertLanes gives messages their lanes and ranks. A rank is the message's id unless one was
// reserved. Ids are assigned in the order of the statements.
func (m *database) insertLanes(ctx context.Context, tx bun.IDB, first int64, rows []dialect.NewMessage) error {
	var values []string
	var args []any
	for i, row := range rows {
		value := "(" + nthID + ", ?, ?, ?, ?)"
		args = append(args, first, i, row.ConsumerType, dialect.Lane(row.OrderKey), row.OrderKey)
		if row.Rank != 0 {
			args = append(args, row.Rank)
		} else {
			value, args = "("+nthID+", ?, ?, ?, "+nthID+")", append(args, first, i)
		}
		values = append(values, value)
	}
	err := m.Exec(ctx, tx, insertLanesSQL+strings.Join(values, ", "), args...)
	return dberr.Wrap(err, "lanes")
}

// InsertKeyed writes insert ids, then the messages whose insert ids were not pending, and then the
// message of each insert id. Writing messages first would write every payload that is then left
// out, and removing it would block settles.
func (m *database) InsertKeyed(ctx context.Context, db bun.IDB, rows []dialect.NewMessage) (ids []uuid.UUID, err error) {
	err = txn.InTx(ctx, db, func(tx bun.Tx) error {
		ids = nil
		var keys []dialect.PendingKey
		for _, row := range rows {
			if row.InsertID != "" {
				keys = append(keys, row.Key())
			}
		}
		free, err := m.reserve(ctx, tx, keys)
		if err != nil {
			return fmt.Errorf("insert ids: %w", err)
		}
		var written []dialect.NewMessage
		var reserved []reservation
		for _, row := range rows {
			if key := row.Key(); row.InsertID != "" {
				if !free[key] {
					continue
				}
				delete(free, key)
				reserved = append(reserved, reservation{PendingKey: key, Place: len(written)})
			}
			written, ids = append(written, row), append(ids, row.MessageID)
		}
		if len(written) == 0 {
			return nil
		}
		first, err := m.insert(ctx, tx, written)
		if err != nil {
			return err
		}
		for i := range reserved {
			reserved[i].ID = first
		}
		return m.assign(ctx, tx, reserved)
	})
	return ids, err
}

// Supersedes returns an error. A removal locks the message first and then its insert id; a
// replacement would lock them the other way round, in a transaction of the caller's.
func (m *database) Supersedes() error {
	return fmt.Errorf("Replace, Debounce and UniqueFor need PostgreSQL or SQLite: %w", errors.ErrUnsupported)
}

// AnyOrder returns an error: places in a lane are ids here.
func (m *database) AnyOrder() error {
	return fmt.Errorf("KeyConcurrency, Fair and KeyRateLimit need PostgreSQL or SQLite: %w", errors.ErrUnsupported)
}

// Priorities returns an error: the index of messages has no part for them.
func (m *database) Priorities() error {
	return fmt.Errorf("priorities need PostgreSQL or SQLite: %w", errors.ErrUnsupported)
}

// Ranks reserves ids by inserting messages that are never visible: ranks are ids, and only the
// server assigns those in the order of all producers.
func (m *database) Ranks(ctx context.Context, tx bun.IDB, n int) ([]int64, error) {
	first, err := m.InsertID(
		ctx,
		tx,
		`INSERT INTO {messages} (message_id, consumer_type, payload_type, payload, created_at, available_after, crashes) VALUES `+
			dialect.Rows("('', '', '', '', 0, 0, -32768)", n),
	)
	if err != nil {
		return nil, err
	}
	var step int64
	if err := tx.NewRaw(`SELECT @@auto_increment_increment`).Scan(ctx, &step); err != nil {
		return nil, err
	}
	ranks := make([]int64, n)
	for i := range ranks {
		ranks[i] = first + int64(i)*step
	}
	return ranks, m.Run(ctx, tx, deleteSQL, ranks)
}

func (m *database) Replace(context.Context, bun.IDB, []dialect.NewMessage) error {
	return m.Supersedes()
}

func (m *database) Withdraw(context.Context, bun.IDB, []dialect.NewMessage) ([]uuid.UUID, error) {
	return nil, m.Supersedes()
}

func (m *database) Supersede(context.Context, bun.IDB, []dialect.PendingKey) ([]dialect.Superseded, error) {
	return nil, m.Supersedes()
}
