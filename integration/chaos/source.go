package chaos

import (
	"database/sql"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
)

// A Source is a data source name, of PostgreSQL or of MariaDB.
type Source string

// IsMariaDB tells which of the two it is of.
func (s Source) IsMariaDB() bool { return !strings.HasPrefix(string(s), "postgres://") }

// Open opens a pool of at most so many connections. On MariaDB bun connects at once, to
// ask for the server's version, and waits for the answer as long as it takes.
func (s Source) Open(pool int) (*bun.DB, error) {
	conns, err := s.Pool()
	if err != nil {
		return nil, err
	}
	conns.SetMaxOpenConns(pool)
	conns.SetMaxIdleConns(pool)
	if s.IsMariaDB() {
		return bun.NewDB(conns, mysqldialect.New()), nil
	}
	return bun.NewDB(conns, pgdialect.New()), nil
}

// Pool opens a pool without bun. It does not connect.
func (s Source) Pool() (*sql.DB, error) {
	if !s.IsMariaDB() {
		return sql.Open("pgx", string(s))
	}
	config, err := mysql.ParseDSN(string(s))
	if err != nil {
		return nil, fmt.Errorf("chaos: data source name: %w", err)
	}
	config.Logger = &mysql.NopLogger{} // it would write lines of its own about every lost connection
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("chaos: data source name: %w", err)
	}
	return sql.OpenDB(connector), nil
}

// As has the connections say whose they are. On MariaDB a variable of the session does.
func (s Source) As(name string) Source {
	if !s.IsMariaDB() {
		return s + Source("&application_name="+name)
	}
	separator := "?"
	if strings.Contains(string(s), "?") {
		separator = "&"
	}
	return s + Source(separator+"@session_of="+url.QueryEscape("'"+name+"'"))
}

// Rerouted is the source of the same database by way of a local port.
func (s Source) Rerouted(port int) (Source, error) {
	if s.IsMariaDB() {
		config, err := mysql.ParseDSN(string(s))
		if err != nil {
			return "", fmt.Errorf("chaos: data source name: %w", err)
		}
		config.Net, config.Addr = "tcp", fmt.Sprintf("127.0.0.1:%d", port)
		return Source(config.FormatDSN()), nil
	}
	through, err := url.Parse(string(s))
	if err != nil {
		return "", fmt.Errorf("chaos: data source name: %w", err)
	}
	query := through.Query()
	query.Set("host", "127.0.0.1")
	query.Set("port", strconv.Itoa(port))
	query.Set("connect_timeout", "5")
	through.Host, through.RawQuery = "", query.Encode()
	return Source(through.String()), nil
}

// server is where the server listens: a Unix socket or a TCP address.
func (s Source) server() (network, address string, err error) {
	if s.IsMariaDB() {
		config, err := mysql.ParseDSN(string(s))
		if err != nil {
			return "", "", err
		}
		return config.Net, config.Addr, nil
	}
	config, err := pgx.ParseConfig(string(s))
	if err != nil {
		return "", "", err
	}
	if strings.HasPrefix(config.Host, "/") {
		return "unix", fmt.Sprintf("%s/.s.PGSQL.%d", config.Host, config.Port), nil
	}
	return "tcp", fmt.Sprintf("%s:%d", config.Host, config.Port), nil
}
