//go:build unix

package chaos_test

import (
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bars on MariaDB, with the same judge.

func barKillsMariaDB(b *bar) {
	config := chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two", "grouped"}, Grouped: []string{"grouped"}}
	kills(b, testdb.MariaDBDSN(b), config, pick(b, 600, 600, 2000), pick(b, 4, 4, 20))
}

func barStopsMariaDB(b *bar) { stops(b, newMariaDB(b), 1, 3) } // an orderly stop says little

// barCommitsMariaDB loses commits only: whatever settles is a transaction of several
// statements there.
func barCommitsMariaDB(b *bar) {
	lostCommits(b, testdb.MariaDBDSN(b), pick(b, 200, 200, 600), []string{"commit", "produce"}, []string{"commit"})
}

// barPausedMariaDB knows what takes several statements by the first that locks.
func barPausedMariaDB(b *bar) {
	const locks = "SELECT c.id, c.solo, c.message_ids"
	pauses(b.asRegular(), testdb.MariaDBDSN, keeping{
		settles: locks, finishes: locks, extends: "SET c.leased_until", renewal: "SELECT id FROM `message_claims` WHERE owner", fences: "SELECT m.id, m.attempts, m.crashes",
	})
}

func barKillersMariaDB(b *bar) { killers(b, testdb.MariaDBDSN) }

func barSigtermMariaDB(b *bar) { sigterms(b.asRegular(), testdb.MariaDBDSN(b)) }

func barInsertIDsMariaDB(b *bar) { insertIDs(b.asRegular(), testdb.MariaDBDSN(b)) }

func barSchedulesMariaDB(b *bar) { fires(b.asRegular(), testdb.MariaDBDSN(b)) }

func barResetsMariaDB(b *bar) { resets(b, newMariaDB(b)) }

func barOutageMariaDB(b *bar) { outage(b, newMariaDB(b)) }

func barBlackHoleMariaDB(b *bar) { blackHole(b, newMariaDB(b)) }

// asRegular has the bar take no longer than make chaos would: the long forms are
// PostgreSQL's.
func (b *bar) asRegular() *bar {
	b.tier = min(b.tier, regular)
	return b
}

func newMariaDB(b *bar) *chaos.Server {
	b.Helper()
	server, err := chaos.NewMariaDB(serverDir(b))
	return started(b, server, err)
}

// openDSN opens a database by its data source name.
func openDSN(t testing.TB, dsn string) *bun.DB {
	t.Helper()
	db, err := chaos.Source(dsn).Open(20)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// mariaTx ends a table whose rows tell the transaction that began them.
const mariaTx = `tx BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, gone BIGINT UNSIGNED GENERATED ALWAYS AS ROW END,
  PERIOD FOR SYSTEM_TIME (tx, gone)) WITH SYSTEM VERSIONING`

// mariaNow is when the statement began.
const mariaNow = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

func (r *run) onMariaDB() bool { return chaos.Source(r.dsn).IsMariaDB() }

// keepMariaHistory is keepHistory, row by row: triggers there see no more. What a
// transaction is called only tables with a history of their own can tell, which keep
// who began each row. Instants are those at which statements began.
func (r *run) keepMariaHistory() {
	r.Helper()
	const (
		session = "COALESCE(@session_of, '')"
		note    = "INSERT INTO history (at, session, kind, claim, until, messages) VALUES (" + mariaNow + ", " + session + ", "
	)
	for _, statement := range []string{
		"CREATE TABLE effects (consumer VARCHAR(255) NOT NULL, job BIGINT NOT NULL, " + mariaTx,
		"CREATE TABLE owners (owner VARCHAR(255) PRIMARY KEY, worker VARCHAR(255) NOT NULL)",
		"CREATE TABLE births (id BIGINT PRIMARY KEY, consumer VARCHAR(255) NOT NULL, job INT NOT NULL)",
		`CREATE TABLE history (seq BIGINT AUTO_INCREMENT PRIMARY KEY, at BIGINT NOT NULL, session VARCHAR(255) NOT NULL, kind VARCHAR(20) NOT NULL,
  claim BIGINT NOT NULL, until BIGINT NOT NULL, messages LONGTEXT NOT NULL, ` + mariaTx,
		"CREATE TRIGGER note_claimed AFTER INSERT ON message_claims FOR EACH ROW BEGIN INSERT IGNORE INTO owners VALUES (NEW.owner, " + session + "); " +
			note + "'claimed', NEW.id, NEW.leased_until, NEW.message_ids); END",
		"CREATE TRIGGER note_kept AFTER UPDATE ON message_claims FOR EACH ROW " + note + "'kept', NEW.id, NEW.leased_until, NEW.message_ids)",
		"CREATE TRIGGER note_ended AFTER DELETE ON message_claims FOR EACH ROW " + note + "'ended', OLD.id, OLD.leased_until, OLD.message_ids)",
		"CREATE TRIGGER note_births AFTER INSERT ON consumer_messages FOR EACH ROW INSERT INTO births VALUES (NEW.id, NEW.consumer_type, JSON_VALUE(NEW.payload, '$.n'))",
		"CREATE TRIGGER note_written AFTER UPDATE ON consumer_messages FOR EACH ROW IF (OLD.attempts, OLD.crashes, OLD.available_after) <> (NEW.attempts, NEW.crashes, NEW.available_after) THEN " +
			note + "'written', 0, 0, JSON_ARRAY(NEW.id)); END IF",
		"CREATE TRIGGER note_removed AFTER DELETE ON consumer_messages FOR EACH ROW " + note + "'written', 0, 0, JSON_ARRAY(OLD.id))",
	} {
		r.exec(statement)
	}
}

// watchMariaFires is watchFires.
func (r *run) watchMariaFires() {
	r.Helper()
	for _, statement := range []string{
		"CREATE TABLE fires (schedule BIGINT, fire_at BIGINT, at BIGINT, " + mariaTx,
		"CREATE TABLE sent (job INT, " + mariaTx,
		"CREATE TRIGGER watch_fires AFTER UPDATE ON scheduled_messages FOR EACH ROW IF NEW.available_after <> OLD.available_after THEN " +
			"INSERT INTO fires (schedule, fire_at, at) VALUES (OLD.id, OLD.available_after, " + mariaNow + "); END IF",
		"CREATE TRIGGER watch_sent AFTER INSERT ON consumer_messages FOR EACH ROW INSERT INTO sent (job) VALUES (JSON_VALUE(NEW.payload, '$.n'))",
	} {
		r.exec(statement)
	}
}

// mariaHistory is history there.
func (r *run) mariaHistory() (changes []chaos.Change, messages map[int64]chaos.Run) {
	r.Helper()
	var rows []struct {
		At       int64
		Tx       string
		Session  string
		Kind     string
		Claim    int64
		Until    int64
		Messages string
	}
	var births []struct {
		ID       int64
		Consumer string
		Job      int
	}
	err := errors.Join(
		r.db.NewRaw("SELECT at, tx, session, kind, claim, until, messages FROM history ORDER BY seq").Scan(r.ctx, &rows),
		r.db.NewRaw("SELECT id, consumer, job FROM births").Scan(r.ctx, &births))
	for _, row := range rows {
		var ids []int64
		err = errors.Join(err, json.Unmarshal([]byte(row.Messages), &ids))
		changes = append(changes, chaos.Change{
			At: time.UnixMicro(row.At), Tx: row.Tx, Session: row.Session, Kind: chaos.ChangeKind(row.Kind), Claim: row.Claim, Until: time.UnixMicro(row.Until), Messages: ids,
		})
	}
	if err != nil {
		r.Fatalf("history: %v", err)
	}
	messages = make(map[int64]chaos.Run, len(births))
	for _, birth := range births {
		messages[birth.ID] = chaos.Run{Consumer: birth.Consumer, Job: birth.Job}
	}
	return changes, messages
}

// mariaClaimedSince is claimedSince there.
func (r *run) mariaClaimedSince(since time.Time) map[claimedRun]time.Time {
	var rows []struct {
		Session  string
		Consumer string
		Job      int
		At       int64
	}
	err := r.db.NewRaw("SELECT h.session, b.consumer, b.job, MIN(h.at) AS at FROM history h CROSS JOIN JSON_TABLE(h.messages, '$[*]' COLUMNS (id BIGINT PATH '$')) m"+
		" JOIN births b ON b.id = m.id WHERE h.kind = 'claimed' AND h.at > ? GROUP BY 1, 2, 3", since.UnixMicro()).Scan(r.ctx, &rows)
	if err != nil {
		return nil
	}
	claimed := make(map[claimedRun]time.Time, len(rows))
	for _, row := range rows {
		claimed[claimedRun{chaos.Run{Consumer: row.Consumer, Job: row.Job}, row.Session}] = time.UnixMicro(row.At)
	}
	return claimed
}

// The proxy sees statements of this protocol, too, and loses what it is told to.
func TestProxyOnMariaDB(t *testing.T) {
	dsn := testdb.MariaDBDSN(t)
	p := &proxied{T: t, direct: testdb.OpenMariaDB(t, dsn).DB}
	if _, err := p.direct.ExecContext(t.Context(), "CREATE TABLE seen (n int)"); err != nil {
		t.Fatal(err)
	}
	var way string
	p.proxy, way = newProxy(&bar{T: t}, dsn)
	p.through = testdb.OpenMariaDB(t, way).DB
	var seen atomic.Int64
	p.proxy.Decide(func(sql string) chaos.Fault {
		if sql == "INSERT INTO seen VALUES (1)" {
			seen.Add(1)
		}
		return chaos.Forward
	})
	if err := p.insert(); err != nil || p.rows() != 1 || seen.Load() != 1 {
		t.Errorf("insert: got error %v, %d rows and %d statements seen, want none, 1 and 1", err, p.rows(), seen.Load())
	}
	p.proxy.Decide(commits(chaos.DropQuery))
	if err := p.insert(); err == nil || p.rows() != 1 {
		t.Errorf("a commit that is dropped: got error %v and %d rows, want an error and the 1 from before", err, p.rows())
	}
	p.proxy.Decide(commits(chaos.DropReply))
	for n := 2; n <= 5; n++ {
		if err := p.insert(); err == nil || p.rows() != n {
			t.Errorf("a commit whose answer is dropped: got error %v and %d rows, want an error and %d", err, p.rows(), n)
		}
	}
}
