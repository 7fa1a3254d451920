package connect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	_ "modernc.org/sqlite" // registers the driver
)

// connections are few: people look, and the runner of operations needs one more.
const connections = 4

const (
	// sqliteSettings are those of a connection without which concurrent writers fail.
	sqliteSettings = "_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=synchronous(NORMAL)"
	// sqliteNew is the setting of the file itself, which only a command that creates tables may change.
	sqliteNew = "&_pragma=journal_mode(WAL)"
)

// ErrDSN: the DSN cannot be used; use errors.Is.
var ErrDSN = errors.New("DSN: postgres://…, mariadb://… and sqlite:PATH are allowed")

// Secret is a DSN.
type Secret string

// String hides it.
func (Secret) String() string { return "DSN" }

// Open connects to the database of a DSN: postgres://user:password@host/database, mariadb://user:password@host:port/database
// sqlite:PATH or sqlite:PATH?mode=ro. It changes nothing in the database. Errors do not show the DSN; see [Trouble].
func Open(ctx context.Context, dsn Secret) (*bun.DB, error) { return open(ctx, dsn, "") }

// Create is Open for a command that creates tables: it makes the file of a SQLite database, in WAL mode.
func Create(ctx context.Context, dsn Secret) (*bun.DB, error) { return open(ctx, dsn, sqliteNew) }

func open(ctx context.Context, dsn Secret, sqliteMode string) (*bun.DB, error) {
	if err := dsn.unambiguous(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDSN, err)
	}
	var conns *sql.DB
	var speaks schema.Dialect
	var err error
	switch dsn.scheme() {
	case "postgres", "postgresql":
		conns, err = openPostgres(string(dsn))
		speaks = pgdialect.New()
	case "mariadb", "mysql":
		conns, err = openMariaDB(string(dsn))
		speaks = mysqldialect.New()
	case "sqlite":
		conns, err = openSQLite(dsn, sqliteMode)
		speaks = sqlitedialect.New()
	default:
		return nil, ErrDSN
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrDSN, dsn.Scrub(err.Error()))
	}
	conns.SetMaxOpenConns(connections)
	// Before bun has it, which asks some databases for their version, for as long as it takes, and logs errors.
	if err := conns.PingContext(ctx); err != nil {
		_ = conns.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return bun.NewDB(conns, speaks), nil
}

func openPostgres(dsn string) (*sql.DB, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("not a PostgreSQL URL")
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "asyncmonolith"
	}
	return stdlib.OpenDB(*config), nil
}

func openMariaDB(dsn string) (*sql.DB, error) {
	parsed, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("not a URL")
	}
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = parsed.User.Username(), "tcp", parsed.Host
	config.Passwd, _ = parsed.User.Password()
	config.DBName = strings.TrimPrefix(parsed.Path, "/")
	query := parsed.Query()
	if socket := query.Get("socket"); socket != "" {
		config.Net, config.Addr = "unix", socket
	} else if parsed.Port() == "" {
		config.Addr += ":3306"
	}
	config.TLSConfig = query.Get("tls")
	for _, key := range []string{"socket", "tls"} {
		query.Del(key)
	}
	for key := range query {
		return nil, fmt.Errorf("unknown parameter %q: socket and tls are allowed", key)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func openSQLite(dsn Secret, mode string) (*sql.DB, error) {
	path, _ := dsn.file()
	if path == "" {
		return nil, errors.New("the path is empty")
	}
	switch _, parameters, _ := strings.Cut(string(dsn), "?"); {
	case parameters == "mode=ro":
		mode = "&mode=ro"
	case parameters != "":
		return nil, errors.New("a SQLite DSN allows only mode=ro")
	}
	return sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+sqliteSettings+mode)
}

func (s Secret) scheme() string {
	scheme, _, _ := strings.Cut(string(s), ":")
	return scheme
}

// file is the path of a database that is a file.
func (s Secret) file() (path string, ok bool) {
	path, ok = strings.CutPrefix(string(s), "sqlite:")
	path, _, _ = strings.Cut(path, "?")
	return strings.TrimPrefix(path, "//"), ok
}

// unambiguous refuses a DSN with an @ behind what a URL takes for the host, as in user:pass?word@host: what a URL takes
// for the query or the path is then part of the password, and errors about it would show that.
func (s Secret) unambiguous() error {
	if s.scheme() == "sqlite" {
		return nil
	}
	_, rest, _ := strings.Cut(string(s), "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 || strings.Contains(rest[:end], "@") || !strings.Contains(rest[end:], "@") {
		return nil
	}
	return errors.New("percent-encode the characters / ? # @ of the user name and the password: %2F %3F %23 %40")
}

// HasPassword reports whether the DSN carries one, or may do so.
func (s Secret) HasPassword() bool { return len(s.passwords()) > 0 || s.unambiguous() != nil }

func (s Secret) passwords() (found []string) {
	parsed, err := url.Parse(string(s))
	if err != nil {
		return nil
	}
	if password, ok := parsed.User.Password(); ok && password != "" {
		found = append(found, password)
	}
	for _, key := range []string{"password", "sslpassword"} {
		if password := parsed.Query().Get(key); password != "" {
			found = append(found, password)
		}
	}
	return found
}

// Scrub takes the DSN and its password out of a text, such as that of a driver's error.
func (s Secret) Scrub(text string) string {
	if s != "" {
		text = strings.ReplaceAll(text, string(s), "DSN")
	}
	for _, password := range s.passwords() {
		text = strings.ReplaceAll(text, password, "xxxxx")
		text = strings.ReplaceAll(text, url.QueryEscape(password), "xxxxx")
	}
	return text
}
