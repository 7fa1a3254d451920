package dberr

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"os"
	"strings"
)

// Class says what an error of a statement speaks of. It is the only place where that is
// decided; what follows from it, for our own statements and for those of a consumer, is
// in docs/errors.md; docs/reference/errors.md lists the codes.
type Class uint8

// The classes of errors.
const (
	// Other speaks of the statement, as far as is known.
	Other Class = iota
	// Conflict: it lost against a concurrent transaction, and may succeed in a new one.
	Conflict
	// LockTimeout: it gave up waiting for a lock.
	LockTimeout
	// Timeout: it took longer than it was allowed to, or somebody ended it.
	Timeout
	// Cancelled: its context ended before it did.
	Cancelled
	// ReadOnly: the server, or the transaction, takes no writes.
	ReadOnly
	// Exhausted: the server lacks room, memory or connections.
	Exhausted
	// Unavailable: the connection was lost, or cannot be made.
	Unavailable
	// Refused: the database does not accept a value.
	Refused
	// Schema: a table or a column is missing.
	Schema
)

// String returns the class as it appears in logs.
func (c Class) String() string {
	return [...]string{"other", "conflict", "lock timeout", "timeout", "cancelled", "read-only", "exhausted", "unavailable",
		"refused", "schema"}[c]
}

// Outage reports whether the same statement of ours, and all others, will succeed once
// the database is well again, and not before. Nobody cancels a statement of ours but
// those who want no answer any more, so one that was cancelled all the same was cut off.
func (c Class) Outage() bool {
	return c == Unavailable || c == ReadOnly || c == Exhausted || c == Cancelled
}

// conflictError is an error that says so itself that it may succeed in a new
// transaction: that of an event stream, which is no error of the database.
type conflictError interface{ Conflict() bool }

// SaysConflict reports whether an error calls itself a conflict.
func SaysConflict(err error) (says bool) {
	defer func() { _ = recover() }() // a method of somebody's error
	var conflict conflictError
	return errors.As(err, &conflict) && conflict.Conflict()
}

// ClassOf classifies an error, nil and errors of others included. One whose methods
// panic is Other.
func ClassOf(err error) (class Class) {
	if err == nil {
		return Other
	}
	defer func() {
		if recover() != nil {
			class = Other
		}
	}()
	if class = classOfAnswer(err); class != Other {
		return class
	}
	switch {
	case SaysConflict(err):
		return Conflict
	case isMySQLBroken(err), isUnsent(err):
		return Unavailable
	case strings.Contains(err.Error(), "no such table"), strings.Contains(err.Error(), "no such column"):
		return Schema
	case strings.Contains(err.Error(), "packet for query is too large"): // go-sql-driver does not send it
		return Refused
	case Answered(err):
		return Other
	}
	return classOfNoAnswer(err)
}

// Answered reports whether an error is what the database itself has said: it is there.
func Answered(err error) bool {
	number, _ := MySQLError(err)
	return number != 0 || SQLiteCode(err) != 0 || sqlState(err) != ""
}

// IsAborted reports whether a statement was refused since one before it has aborted the transaction, as on PostgreSQL.
func IsAborted(err error) bool { return sqlState(err) == "25P02" }

// classOfAnswer is of what the database says.
func classOfAnswer(err error) Class {
	number, state := MySQLError(err)
	if class := classOfMySQL(number); class != Other {
		return class
	}
	if class := classOfSQLite(SQLiteCode(err)); class != Other {
		return class
	}
	if state == "" {
		state = sqlState(err)
	}
	return classOfState(state)
}

func classOfState(state string) Class {
	switch state {
	case "":
		return Other
	case "40001", "40P01":
		return Conflict
	case "55P03":
		return LockTimeout
	case "57014", transactionTimeout:
		return Timeout
	case "25006":
		return ReadOnly
	case "25P03":
		return Unavailable
	case "42P01", "42S02", "3F000", "42703", "42S22":
		return Schema
	}
	switch state[:min(2, len(state))] {
	case "08", "57":
		return Unavailable
	case "53", "58":
		return Exhausted
	case "22", "23", "54":
		return Refused
	}
	return Other
}

func classOfMySQL(number int) Class {
	switch number {
	case mysqlChanged:
		return Conflict
	case mysqlLockWait, mysqlLockNowait:
		return LockTimeout
	case mysqlInterrupted, mysqlStatementTime, mysqlExecutionTime:
		return Timeout
	case mysqlReadOnly, mysqlReadOnlyTx, mysqlReadOnlyMode:
		return ReadOnly
	case mysqlDiskFull, mysqlEngine, mysqlOutOfMemory, mysqlTableFull, mysqlUserConnections, mysqlLockTableFull, mysqlUserLimit:
		return Exhausted
	case mysqlKilled, mysqlIdle:
		return Unavailable
	case mysqlPacketTooLarge, mysqlCheckConstraint:
		return Refused
	}
	return Other
}

func classOfSQLite(code int) Class {
	switch code {
	case sqliteBusySnapshot:
		return Conflict
	case sqliteInterrupt:
		return Timeout
	}
	switch code & 0xff {
	case sqliteReadOnly:
		return ReadOnly
	case sqliteNoMemory, sqliteIO, sqliteFull:
		return Exhausted
	case SQLiteBusy, sqliteLocked, sqliteCantOpen:
		return Unavailable
	case sqliteTooBig, sqliteConstraint, sqliteMismatch:
		return Refused
	}
	return Other
}

// classOfNoAnswer is of what happened on the way. A deadline that has passed while a
// connection was being made is no matter of the statement. Some drivers have the
// connection keep it.
func classOfNoAnswer(err error) Class {
	var dial *net.OpError
	var network net.Error
	switch {
	case errors.As(err, &dial) && dial.Op == "dial":
		return Unavailable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	case errors.Is(err, context.Canceled):
		return Cancelled
	case strings.HasSuffix(err.Error(), "sql: database is closed"), // database/sql does not export it
		errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.As(err, &network):
		return Unavailable
	}
	return Other
}

// isUnsent reports whether a driver knows that the connection had broken before.
func isUnsent(err error) bool {
	var unsent unsentError
	return errors.As(err, &unsent) && unsent.SafeToRetry() && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
}
