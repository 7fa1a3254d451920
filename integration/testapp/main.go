package testapp

import (
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Main runs the tests of a package, which are to leave no goroutine behind, and no statement prepared twice. The
// library logs into the void, unless a test gives it a logger.
func Main(m goleak.TestingM) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := preparedTwice(); code == 0 && err != nil {
			fmt.Println("FAIL:", err)
			code = 1
		}
		os.Exit(code)
	}))
}

// preparedTwice looks in the log of a server that `make test` has started. Behind a pooler, statements meet.
func preparedTwice() error {
	dsn := os.Getenv(testdb.Variable)
	if !strings.Contains(dsn, "asyncmonolith-pg.") || os.Getenv(testdb.DirectVariable) != "" {
		return nil
	}
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	var n int
	var first sql.NullString
	if err := db.QueryRow(`SELECT count(*), min(m[1]) FROM regexp_matches(
		convert_from(pg_read_binary_file('server.log'), 'SQL_ASCII'), '(prepared statement "[^"]*" already exists)', 'g') AS m`).Scan(&n, &first); err != nil {
		return fmt.Errorf("the server's log: %w", err)
	}
	if n > 0 {
		return fmt.Errorf("the server's log has %d times: %s", n, first.String)
	}
	return nil
}
