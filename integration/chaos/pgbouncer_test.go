//go:build unix

package chaos_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 9, pgbouncer: in transaction mode every transaction may get another session.
// All tests of integration pass all the same, and killed workers lose nothing.

func barPgbouncer(b *bar) {
	port, stop, err := testdb.StartPgbouncer(testdb.PostgresDSN(b))
	if err != nil {
		b.notRun("pgbouncer", err)
		return
	}
	b.atEnd(func() {
		if log := stop(); b.Failed() {
			b.Logf("pgbouncer: %s", firstLines(strings.TrimSpace(log), 40))
		}
	})
	by := func(dsn string) string { return rerouted(b, dsn, port) }
	b.answering(by(testdb.PostgresDSN(b)))
	b.wholeSuite("pgbouncer in transaction mode", testdb.Variable+"="+rerouted(b, os.Getenv(testdb.Variable), withoutCancels(b, port)),
		testdb.DirectVariable+"="+os.Getenv(testdb.Variable))
	if passed := transactions(b, by(testdb.PostgresDSN(b))); passed < 10_000 {
		b.Errorf("transactions that pgbouncer saw: got %d, want at least 10,000, or the tests did not go through it", passed)
	} else {
		b.figure("pgbouncer in transaction mode: saw %d transactions of the tests", passed)
	}
	for _, config := range bothKinds() {
		r := kills(b, by(testdb.PostgresDSN(b)), config, 1500, 4)
		b.figure("pgbouncer in transaction mode: %s", r.surfaced())
	}
}

// transactions asks pgbouncer itself how many transactions it has passed on.
func transactions(b *bar, dsn string) (n int64) {
	b.Helper()
	config := testapp.Must[*pgx.ConnConfig](b)(pgx.ParseConfig(dsn))
	config.Database, config.DefaultQueryExecMode = "pgbouncer", pgx.QueryExecModeSimpleProtocol // its console
	console := testapp.Must[*pgx.Conn](b)(pgx.ConnectConfig(b.Context(), config))
	defer console.Close(context.WithoutCancel(b.Context())) //nolint:errcheck // only read from
	rows := testapp.Must[pgx.Rows](b)(console.Query(b.Context(), "SHOW TOTALS"))
	for rows.Next() {
		var name string
		var value int64
		testapp.OK(b, rows.Scan(&name, &value))
		if name == "total_xact_count" {
			n = value
		}
	}
	testapp.OK(b, rows.Err())
	return n
}

// withoutCancels returns a local port by which everything gets to a port except
// requests to cancel a query. In Debian 12's release, 1.18, these end pgbouncer now
// and then, when the query ends at the same time (its issue 822, mended in 1.20.1).
func withoutCancels(b *bar, port int) int {
	b.Helper()
	listener := testapp.Must[net.Listener](b)(net.Listen("tcp", "127.0.0.1:0"))
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { relay(client, port) })
		}
	})
	b.Cleanup(func() { _ = listener.Close(); wg.Wait() }) // the tests have closed their ends
	return listener.Addr().(*net.TCPAddr).Port
}

func relay(client net.Conn, port int) {
	defer client.Close()
	const cancelRequest = 80877102
	first := make([]byte, 8, 4096) // length and version, or kind
	if _, err := io.ReadFull(client, first); err != nil || binary.BigEndian.Uint32(first[4:]) == cancelRequest {
		return
	}
	// pgbouncer refuses a first message that comes in parts.
	first = first[:max(8, min(binary.BigEndian.Uint32(first), 4096))]
	if _, err := io.ReadFull(client, first[8:]); err != nil {
		return
	}
	server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return
	}
	defer server.Close()
	if _, err := server.Write(first); err != nil {
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close() // ends the other direction
	})
	_, _ = io.Copy(server, client)
	_ = server.Close()
	answers.Wait()
}
