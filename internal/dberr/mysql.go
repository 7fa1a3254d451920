package dberr

import (
	"errors"
	"reflect"
	"strings"
)

// Numbers of errors of MariaDB and MySQL whose SQLSTATE says too little.
const (
	mysqlChanged         = 1020 // with innodb_snapshot_isolation
	mysqlDiskFull        = 1021
	mysqlEngine          = 1030
	mysqlOutOfMemory     = 1037
	mysqlNoDatabase      = 1046
	mysqlTableFull       = 1114
	mysqlPacketTooLarge  = 1153
	mysqlUserConnections = 1203
	mysqlLockWait        = 1205
	mysqlLockTableFull   = 1206
	mysqlUserLimit       = 1226
	mysqlReadOnly        = 1290
	mysqlInterrupted     = 1317
	mysqlReadOnlyTx      = 1792
	mysqlReadOnlyMode    = 1836
	mysqlKilled          = 1927
	MySQLUnknownQuery    = 1957
	mysqlStatementTime   = 1969
	mysqlExecutionTime   = 3024
	mysqlLockNowait      = 3572
	mysqlCheckConstraint = 3819
	mysqlIdle            = 4031
)

// MySQLError returns the number and the SQLSTATE of an error of
// go-sql-driver/mysql, or 0. Its errors have no methods to recognise them by, only
// fields.
func MySQLError(err error) (number int, state string) {
	if err == nil {
		return 0, ""
	}
	if v := reflect.Indirect(reflect.ValueOf(err)); v.Kind() == reflect.Struct && v.Type().Name() == "MySQLError" {
		n, s := v.FieldByName("Number"), v.FieldByName("SQLState")
		if n.IsValid() && n.CanUint() && s.IsValid() && s.Kind() == reflect.Array && s.Type().Elem().Kind() == reflect.Uint8 {
			text := make([]byte, s.Len())
			reflect.Copy(reflect.ValueOf(text), s)
			return int(n.Uint()), strings.TrimRight(string(text), "\x00")
		}
	}
	switch e := err.(type) { //nolint:errorlint // this is the walk that errors.As does
	case interface{ Unwrap() error }:
		return MySQLError(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if number, state := MySQLError(inner); number != 0 {
				return number, state
			}
		}
	}
	return 0, ""
}

// ErrNoDatabase is what such an error means to somebody who wrote a DSN. It is immutable.
var ErrNoDatabase = errors.New("no database is selected: name one in the DSN, as in user:password@tcp(host:3306)/name")

// Named is the error for callers, where the driver's own says too little.
func Named(err error) error {
	if number, _ := MySQLError(err); number == mysqlNoDatabase {
		return ErrNoDatabase
	}
	return err
}

// mysqlBroken is the text of the driver's error for a connection that broke under
// a statement; it is not driver.ErrBadConn, since the statement may have run.
const mysqlBroken = "invalid connection"

func isMySQLBroken(err error) bool { return err != nil && strings.Contains(err.Error(), mysqlBroken) }
