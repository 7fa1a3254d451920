package dberr

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
)

// Drivers are recognised by the methods of their errors, so that none has to be
// imported.
type (
	sqlStateError interface{ SQLState() string }  // pgx, and pq
	fieldError    interface{ Field(byte) string } // bun's pgdriver
	codeError     interface{ Code() int }         // modernc.org/sqlite
	unsentError   interface{ SafeToRetry() bool } // pgx, of a connection that had broken before
)

// transactionTimeout is the code of PostgreSQL 17 for a transaction that took longer than
// the setting transaction_timeout: the server ends the connection as well.
const transactionTimeout = "25P04"

// Result codes of SQLite.
const (
	SQLiteBusy       = 5 // another connection has the write lock
	sqliteLocked     = 6
	sqliteNoMemory   = 7
	sqliteReadOnly   = 8
	sqliteInterrupt  = 9
	sqliteIO         = 10
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteTooBig     = 18
	sqliteConstraint = 19
	sqliteMismatch   = 20

	sqliteBusySnapshot = 517 // somebody has written since this transaction first read
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
	_, code := MySQLError(err)
	return code
}

// SQLiteCode returns the result code of a SQLite error, or 0. Other packages' errors have a method Code as
// well, and may wrap a SQLite error: so only types of a package for SQLite count.
func SQLiteCode(err error) int {
	var code codeError
	for errors.As(err, &code) {
		of := reflect.TypeOf(code)
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if strings.Contains(of.PkgPath(), "sqlite") {
			return code.Code()
		}
		outer, _ := code.(error)
		err = errors.Unwrap(outer)
	}
	return 0
}

// IsConflict reports whether a statement lost against a concurrent transaction, so that
// it may succeed in a new one. One that has waited for a lock in vain is a lock timeout:
// it would only wait again.
func IsConflict(err error) bool { return ClassOf(err) == Conflict }

// IsDeadlock reports whether PostgreSQL ended a statement to end a deadlock (40P01). Behind a savepoint the
// statement can be repeated: going back to it frees the locks that the statement took.
func IsDeadlock(err error) bool { return err != nil && sqlState(err) == "40P01" }

// IsLockTimeout reports whether a statement gave up waiting for a lock.
func IsLockTimeout(err error) bool { return ClassOf(err) == LockTimeout }

// IsUnavailable reports whether an error speaks of the connection or the server
// rather than of the statement: the same statement may succeed later. So it does where
// the connection itself has waited in vain.
func IsUnavailable(err error) bool {
	class := ClassOf(err)
	return class.Outage() && class != Cancelled || class == Timeout && errors.Is(err, os.ErrDeadlineExceeded)
}

// IsConnectionDoubtful reports whether the connection that met an error should not be
// used again: it is broken or about to be closed, or leads to a server that takes no
// writes any more. A server that merely refuses a statement, for want of room or of
// time, leaves its connection as it was.
func IsConnectionDoubtful(err error) bool {
	number, _ := MySQLError(err)
	switch ClassOf(err) {
	case ReadOnly, Unavailable:
		return true
	case Timeout:
		return !Answered(err) || number == mysqlInterrupted || sqlState(err) == transactionTimeout
	}
	return false
}

// IsUnknownStatement reports whether the server does not know such statements.
func IsUnknownStatement(err error) bool {
	state := sqlState(err)
	return state == "42601" || state == "0A000"
}

// IsPlanned, IsPlanLost and IsPlanStale tell whether a connection has prepared a statement
// already, has not, or has and can no longer use it. They are PostgreSQL's.
func IsPlanned(err error) bool { return sqlState(err) == "42P05" }

// IsPlanLost is described with [IsPlanned].
func IsPlanLost(err error) bool { return sqlState(err) == "26000" }

// IsPlanStale is described with [IsPlanned].
func IsPlanStale(err error) bool {
	return sqlState(err) == "0A000" && strings.Contains(err.Error(), "cached plan")
}

// IsRefused reports whether the database does not accept a value of a statement, so
// that the same statement without that value may succeed.
func IsRefused(err error) bool { return ClassOf(err) == Refused }

// ErrSchemaOutdated is outbox.ErrSchemaOutdated.
var ErrSchema = errors.New("the schema is missing or too old, run outbox.Migrate")

// ErrUnsupportedServer is outbox.ErrUnsupportedServer.
var ErrServer = errors.New("this server is refused")

// Explained gives an error that speaks of a missing table its name,
// [ErrSchemaOutdated], under which callers know it. Other errors stay as they are.
func Explained(err error) error {
	if !IsMissingTable(err) || errors.Is(err, ErrSchema) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrSchema, err)
}

// Wrap puts what was being done before an error, explained; nil stays nil. It is not for
// errors of the application's functions, whose missing tables are not the library's.
func Wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), Explained(err))
}

// IsMissingColumn reports whether a statement named a column that does not exist.
func IsMissingColumn(err error) bool {
	return ClassOf(err) == Schema && !IsMissingTable(err)
}

// IsMissingTable reports whether a statement named a table that does not exist.
func IsMissingTable(err error) bool {
	if ClassOf(err) != Schema {
		return false
	}
	switch sqlState(err) {
	case "42703", "42S22":
		return false
	}
	return !strings.Contains(err.Error(), "no such column")
}
