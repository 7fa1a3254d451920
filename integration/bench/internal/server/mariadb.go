package server

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// MariaDBVariable names the environment variable with the DSN of a MariaDB server on
// which databases may be created.
const MariaDBVariable = "ASYNCMONOLITH_TEST_MARIADB"

// FreshMariaDB creates an empty database on MariaDB. drop removes it.
func FreshMariaDB(ctx context.Context) (dsn string, drop func() error, err error) {
	base := os.Getenv(MariaDBVariable)
	if base == "" {
		return "", nil, fmt.Errorf("%s is not set: run the benchmarks with `make bench`, which starts a private MariaDB", MariaDBVariable)
	}
	config, err := mysql.ParseDSN(base)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", MariaDBVariable, err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", MariaDBVariable, err)
	}
	server := sql.OpenDB(connector)
	name := "bench_" + strings.ToLower(rand.Text()[:12])
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return "", nil, errors.Join(fmt.Errorf("create database: %w", err), server.Close())
	}
	config.DBName = name
	return config.FormatDSN(), func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		_, err := server.ExecContext(ctx, "DROP DATABASE "+name)
		return errors.Join(err, server.Close())
	}, nil
}
