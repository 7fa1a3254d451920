package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Drivers are recognised by the methods of their errors, so that none has to be
// imported.
type (
	sqlStateError interface{ SQLState() string }  // pgx, and pq
	fieldError    interface{ Field(byte) string } // bun's pgdriver
	codeError     interface{ Code() int }         // modernc.org/sqlite
	unsentError   interface{ SafeToRetry() bool } // pgx, of a connection that had broken before
)

const (
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteTooBig     = 18
	sqliteConstraint = 19
	sqliteMismatch   = 20
)

// sqlState returns the five-character code of an error of PostgreSQL or MariaDB,
// or "".
func sqlState(err error) string {
	var state sqlStateError
	if errors.As(err, &state) {
		return state.SQLState()
	}
	var field fieldError
	if errors.As(err, &field) {
		return field.Field('C')
	}
	_, code := mysqlError(err)
	return code
}

// sqliteCode returns the primary result code of a SQLite error, or 0.
func sqliteCode(err error) int {
	var code codeError
	if errors.As(err, &code) {
		return code.Code() & 0xff
	}
	return 0
}

// IsConflict tells whether a statement lost against a concurrent transaction,
// so that the same statement may succeed when it is run again.
func IsConflict(err error) bool {
	if err == nil {
		return false
	}
	switch sqlState(err) {
	case "40001", "40P01":
		return true
	}
	switch number, _ := mysqlError(err); number {
	case mysqlLockWait, mysqlChanged:
		return true
	}
	return false
}

// IsLockTimeout tells whether a statement gave up waiting for a lock.
func IsLockTimeout(err error) bool {
	number, state := mysqlError(err)
	return number == mysqlLockWait || number == mysqlLockNowait || state == "" && sqlState(err) == "55P03"
}

// IsUnavailable tells whether an error speaks of the connection or the server
// rather than of the statement: the same statement may succeed later.
func IsUnavailable(err error) bool {
	if err == nil {
		return false
	}
	state, code := sqlState(err), sqliteCode(err)
	number, _ := mysqlError(err)
	if unavailable, _ := mysqlUnavailable(number); unavailable || isMySQLBroken(err) {
		return true
	}
	switch {
	case code == sqliteBusy, code == sqliteLocked:
		return true
	case state == "":
	case strings.HasPrefix(state, "08"), strings.HasPrefix(state, "53"), strings.HasPrefix(state, "57"),
		strings.HasPrefix(state, "58"), state == "25006", state == "25P03", state == "55P03":
		return true
	default:
		return false
	}
	var unsent unsentError
	if errors.As(err, &unsent) && unsent.SafeToRetry() {
		return true
	}
	var network net.Error
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.As(err, &network)
}

// IsConnectionDoubtful tells whether the connection that met an unavailable
// database should not be used again: it is broken or about to be closed, or leads
// to a server that takes no writes any more. A server that merely refuses a
// statement, for want of room or of time, leaves its connection as it was.
func IsConnectionDoubtful(err error) bool {
	number, _ := mysqlError(err)
	if _, doubtful := mysqlUnavailable(number); doubtful {
		return true
	}
	switch state := sqlState(err); {
	case state == "":
		return IsUnavailable(err)
	case strings.HasPrefix(state, "08"), strings.HasPrefix(state, "57P"), state == "25P03", state == "25006":
		return true
	}
	return false
}

// IsRefused tells whether the database does not accept a value of a statement, so
// that the same statement without that value may succeed.
func IsRefused(err error) bool {
	if err == nil {
		return false
	}
	switch sqliteCode(err) {
	case sqliteTooBig, sqliteConstraint, sqliteMismatch:
		return true
	}
	switch number, _ := mysqlError(err); number {
	case mysqlPacketTooLarge, mysqlCheckConstraint:
		return true
	}
	switch state := sqlState(err); {
	case strings.HasPrefix(state, "22"), strings.HasPrefix(state, "23"), strings.HasPrefix(state, "54"):
		return true
	}
	return false
}

// Explained gives an error that speaks of a missing table its name,
// bus.ErrSchema, under which callers know it. Other errors stay as they are.
func Explained(err error) error {
	if !IsMissingTable(err) || errors.Is(err, bus.ErrSchema) {
		return err
	}
	return fmt.Errorf("%w: %w", bus.ErrSchema, err)
}

func isMissingColumn(err error) bool {
	if err == nil {
		return false
	}
	state := sqlState(err)
	return state == "42703" || state == "42S22" || strings.Contains(err.Error(), "no such column")
}

// IsMissingTable tells whether a statement named a table that does not exist.
func IsMissingTable(err error) bool {
	if err == nil {
		return false
	}
	state := sqlState(err)
	return state == "42P01" || state == "42S02" || state == "3F000" || strings.Contains(err.Error(), "no such table")
}
