package connect

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
)

// ErrSilent: the database does not answer.
var ErrSilent = errors.New("the database does not answer")

// ErrNoFile: there is no database in that file.
var ErrNoFile = errors.New("the database file")

// What SQLite says of files.
const (
	sqliteCantOpen = 14
	sqliteNotADB   = 26
)

// What MariaDB says of who connects, and to what.
const (
	mariaNoAccess   = 1044
	mariaNoTable    = 1142
	mariaNoColumn   = 1143
	mariaNoRight    = 1227
	mariaNoPassword = 1045
	mariaNoDatabase = 1049
	mariaNoPlugin   = 1698
)

// Trouble is a sentence about a database that is not there, or does not allow that, and "" of other
// errors. It shows nothing of the DSN.
func Trouble(err error) string {
	var pg *pgconn.PgError
	var maria *mysql.MySQLError
	var connecting *pgconn.ConnectError
	switch code := dberr.SQLiteCode(err) & 0xff; {
	case errors.Is(err, ErrNoFile):
		return ErrNoFile.Error() + strings.SplitAfterN(err.Error(), ErrNoFile.Error(), 2)[1]
	case code == sqliteNotADB:
		return "the file is not a SQLite database"
	case code == sqliteCantOpen:
		return "the SQLite file cannot be opened"
	case errors.As(err, &pg) && (pg.Code == "28P01" || pg.Code == "28000"),
		errors.As(err, &maria) && (maria.Number == mariaNoPassword || maria.Number == mariaNoPlugin):
		return "the database rejects the user or the password"
	case errors.As(err, &connecting) && errors.As(err, &pg) && pg.Code == "42704":
		return "the database rejects a parameter of the DSN: " + pg.Message
	case errors.As(err, &connecting) && errors.As(err, &pg) && pg.Code == "22023":
		return "the database rejects the value of a DSN parameter"
	case errors.As(err, &pg) && pg.Code == "3D000", errors.As(err, &maria) && maria.Number == mariaNoDatabase:
		return "the server has no database of that name"
	case errors.As(err, &pg) && pg.Code == "42501",
		errors.As(err, &maria) && slices.Contains([]uint16{mariaNoAccess, mariaNoTable, mariaNoColumn, mariaNoRight}, maria.Number):
		return "the database user lacks a privilege"
	}
	switch class := dberr.ClassOf(err); {
	case class == dberr.ReadOnly:
		return "the database is read-only"
	case class == dberr.Exhausted:
		return "the database has no connections, memory or space left"
	case class == dberr.Unavailable, errors.Is(err, ErrSilent), errors.As(err, &connecting):
		return "the database is down or unreachable: " + cause(err)
	}
	return ""
}

// NoTables reports whether a table or a column is missing.
func NoTables(err error) bool { return dberr.ClassOf(err) == dberr.Schema }

// cause is what happened on the way, without where to.
func cause(err error) string {
	var number syscall.Errno
	var name *net.DNSError
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &name):
		return "unknown host name"
	case errors.Is(err, ErrSilent), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer"
	case errors.As(err, &answer):
		return answer.Message
	default:
		return "the connection was refused or lost"
	}
}

// Exists is an error if the DSN names a file, and there is none.
func (s Secret) Exists() error {
	path, ok := s.file()
	if !ok || path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%w does not exist: run asyncmonolith migrate", ErrNoFile)
	case err == nil && info.IsDir():
		return fmt.Errorf("%w is a directory", ErrNoFile)
	default:
		return nil
	}
}
