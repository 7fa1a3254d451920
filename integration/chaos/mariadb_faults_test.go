//go:build unix

package chaos_test

import (
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// More bars on MariaDB: the same faults, in its own words.

// mariaClaimed are the ids of all claimed messages.
const mariaClaimed = `SELECT h.id FROM message_claims c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h`

func barMisdeedsMariaDB(b *bar) { misdeeds(b, testdb.MariaDB(b)) }

func barCyclesMariaDB(b *bar) { cycles(b, testdb.MariaDB(b), 1000) }

func barPoolRefusedMariaDB(b *bar) { poolRefused(b, testdb.MariaDBDSN(b)) }

func barPoolUsedMariaDB(b *bar) {
	poolUsed(b, testdb.MariaDBDSN(b), queries{
		seen:   "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND INFO LIKE 'SELECT SLEEP%'",
		keep:   `UPDATE consumer_messages SET payload = JSON_SET(payload, '$.do', '') WHERE consumer_type = 'two'`,
		hasten: `UPDATE consumer_messages SET payload = JSON_SET(payload, '$.takes', 0) WHERE id NOT IN (` + mariaClaimed + `)`,
	})
}

// barReadOnlyMariaDB works as a user who may not write to a server that is read-only,
// as an application's should be.
func barReadOnlyMariaDB(b *bar) {
	server := newMariaDB(b)
	root := openDSN(b, server.DSN())
	b.exec(root, "CREATE USER app@localhost")
	b.exec(root, "GRANT ALL ON test.* TO app@localhost")
	dsn, err := mysql.ParseDSN(server.DSN())
	if err != nil {
		b.Fatal(err)
	}
	dsn.User = "app"
	readOnly(b, dsn.FormatDSN(), shutting{
		flip:    func(on bool) { b.exec(root, fmt.Sprintf("SET GLOBAL read_only = %t", on)) },
		write:   "CREATE TABLE IF NOT EXISTS writable (n INT)",
		refusal: "1290",
	})
}

func barLatencyMariaDB(b *bar) { latency(b, newMariaDB(b).DSN()) }

// barVanishedMariaDB has the server end transactions that are idle, as docs/deploying.md
// says: by itself it would wait for the client's network for hours.
func barVanishedMariaDB(b *bar) {
	vanish(b, newMariaDB(b).DSN()+"?idle_transaction_timeout=5", "INSERT INTO `message_claims`")
}

// barDiskFullMariaDB fills the tables. The log has its room from the beginning.
func barDiskFullMariaDB(b *bar) {
	diskFull(b, func(disk string) *chaos.Server {
		server, err := chaos.NewMariaDB(disk, "innodb-log-file-size=16M")
		started(b, server, err)
		b.exec(openDSN(b, server.DSN()), "CREATE TABLE ballast (text CHAR(32))") // a new one would need files that cannot be made
		return server
	}, filling{table: "INSERT INTO ballast SELECT MD5(seq) FROM seq_1_to_1000000", refusal: "1114"})
}

func barIsolationMariaDB(b *bar) {
	d := stricter{
		level: "SERIALIZABLE",
		dsn:   func(t testing.TB) string { return testdb.MariaDBDSN(t) },
		by:    func(dsn string) string { return dsn + "?tx_isolation=%27SERIALIZABLE%27" },
		ask:   "SELECT @@tx_isolation",
	}
	b.storeSuite(d.level, d.open)
	d.kills(b, bothKinds())
	d.produces(b)
}

func barDeployMariaDB(b *bar) {
	deploy(b.asRegular(), testdb.MariaDBDSN(b), "(attempts > 0 OR crashes > 0 OR id IN ("+mariaClaimed+"))")
}
