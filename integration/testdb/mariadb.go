package testdb

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
)

// MariaDBVariable names the environment variable with the DSN of a MariaDB server
// on which databases may be created.
const MariaDBVariable = "ASYNCMONOLITH_TEST_MARIADB"

// MariaDB opens a new, empty database. A missing server fails the test.
func MariaDB(t testing.TB) *bun.DB { return OpenMariaDB(t, MariaDBDSN(t)) }

// MariaDBDSN creates a new, empty database that is dropped after the test. Its
// sessions have the settings, such as "sql_mode='ANSI'".
func MariaDBDSN(t testing.TB, settings ...string) string {
	t.Helper()
	need(t, "mariadb")
	base := os.Getenv(MariaDBVariable)
	if base == "" {
		t.Fatalf("%s is not set: run the tests with `make test`, which starts a private MariaDB", MariaDBVariable)
	}
	config, err := mysql.ParseDSN(base)
	if err != nil {
		t.Fatalf("%s: %v", MariaDBVariable, err)
	}
	server := OpenMariaDB(t, base)
	config.DBName = "t_" + strings.ToLower(rand.Text()[:12])
	if _, err := server.ExecContext(context.Background(), "CREATE DATABASE "+config.DBName); err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		if _, err := server.ExecContext(context.Background(), "DROP DATABASE "+config.DBName); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	if config.Params == nil {
		config.Params = make(map[string]string)
	}
	for _, setting := range settings {
		key, value, _ := strings.Cut(setting, "=")
		config.Params[key] = value
	}
	return config.FormatDSN()
}

// OpenMariaDB opens a database by its DSN.
func OpenMariaDB(t testing.TB, dsn string) *bun.DB {
	t.Helper()
	conns, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatalf("open %s: %v", MariaDBVariable, err)
	}
	conns.SetMaxOpenConns(20)
	conns.SetMaxIdleConns(20)
	db := bun.NewDB(conns, mysqldialect.New())
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// OldSnapshots opens a database whose transactions may write what their snapshot does
// not show. With innodb_snapshot_isolation, the default from MariaDB 11.6.2 on, they get a conflict.
func OldSnapshots(t testing.TB) *bun.DB {
	t.Helper()
	dsn := MariaDBDSN(t)
	var known bool
	if err := OpenMariaDB(t, dsn).NewRaw("SELECT COUNT(*) > 0 FROM information_schema.SYSTEM_VARIABLES WHERE VARIABLE_NAME = "+
		"'INNODB_SNAPSHOT_ISOLATION'").Scan(t.Context(), &known); err != nil {
		t.Fatal(err)
	}
	if known {
		dsn += "?innodb_snapshot_isolation=0"
	}
	return OpenMariaDB(t, dsn)
}
