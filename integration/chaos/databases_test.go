//go:build unix

package chaos_test

import (
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// What differs between databases for more than one bar.

// dsn creates a database, and returns its data source name.
func (b *bar) dsn() string { b.Helper(); return b.dsnOf(b) }

// dsnOf is dsn for a database that is dropped after another test.
func (b *bar) dsnOf(t testing.TB) string {
	t.Helper()
	return of(b, testdb.PostgresDSN, testdb.MariaDBDSN)(t)
}

// openDSN opens a database by its data source name.
func openDSN(t testing.TB, dsn string) *bun.DB {
	t.Helper()
	db := testapp.Must[*bun.DB](t)(chaos.Source(dsn).Open(20))
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// claimed selects the ids of all claimed messages.
func (b *bar) claimed() string {
	return of(b, "SELECT unnest(message_ids) FROM message_claims",
		"SELECT h.id FROM message_claims c, JSON_TABLE(c.message_ids, '$[*]' COLUMNS (id BIGINT PATH '$')) h")
}

// with is a payload with another value of a field.
func (b *bar) with(field, value string) string {
	return of(b, `(payload::jsonb || '{"`+field+`":`+value+`}')::text`, `JSON_SET(payload, '$.`+field+`', `+value+`)`)
}

// mariaNow is when the statement began, in microseconds.
const mariaNow = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"

// mariaTx ends a table with a history of its own, whose rows tell the transaction that began
// them: nothing else there can.
const mariaTx = `tx BIGINT UNSIGNED GENERATED ALWAYS AS ROW START, gone BIGINT UNSIGNED GENERATED ALWAYS AS ROW END,
  PERIOD FOR SYSTEM_TIME (tx, gone)) WITH SYSTEM VERSIONING`

const (
	mariaSession = "COALESCE(@session_of, '')"
	mariaNote    = "INSERT INTO history (at, session, kind, claim, until, messages) VALUES (" + mariaNow + ", " + mariaSession + ", "
)

// mariaHistory is keepHistory, row by row: triggers there see no more. Instants are those at which
// statements began.
const mariaHistory = `
CREATE TABLE effects (consumer VARCHAR(255) NOT NULL, job BIGINT NOT NULL, ` + mariaTx + `

CREATE TABLE owners (owner VARCHAR(255) PRIMARY KEY, worker VARCHAR(255) NOT NULL)

CREATE TABLE births (id BIGINT PRIMARY KEY, consumer VARCHAR(255) NOT NULL, job INT NOT NULL)

CREATE TABLE history (seq BIGINT AUTO_INCREMENT PRIMARY KEY, at BIGINT NOT NULL, session VARCHAR(255) NOT NULL, kind VARCHAR(20) NOT NULL,
  claim BIGINT NOT NULL, until BIGINT NOT NULL, messages LONGTEXT NOT NULL, ` + mariaTx + `

CREATE TRIGGER note_claimed AFTER INSERT ON message_claims FOR EACH ROW BEGIN
  INSERT IGNORE INTO owners VALUES (NEW.owner, ` + mariaSession + `); ` + mariaNote +
	`'claimed', NEW.id, NEW.leased_until, NEW.message_ids); END

CREATE TRIGGER note_kept AFTER UPDATE ON message_claims FOR EACH ROW ` + mariaNote + `'kept', NEW.id, NEW.leased_until, NEW.message_ids)

CREATE TRIGGER note_ended AFTER DELETE ON message_claims FOR EACH ROW ` + mariaNote + `'ended', OLD.id, OLD.leased_until, OLD.message_ids)

CREATE TRIGGER note_births AFTER INSERT ON consumer_messages FOR EACH ROW
  INSERT INTO births VALUES (NEW.id, NEW.consumer_type, JSON_VALUE(NEW.payload, '$.n'))

CREATE TRIGGER note_written AFTER UPDATE ON consumer_messages FOR EACH ROW
  IF (OLD.attempts, OLD.crashes, OLD.available_after) <> (NEW.attempts, NEW.crashes, NEW.available_after) THEN ` + mariaNote +
	`'written', 0, 0, JSON_ARRAY(NEW.id)); END IF

CREATE TRIGGER note_removed AFTER DELETE ON consumer_messages FOR EACH ROW ` + mariaNote + `'written', 0, 0, JSON_ARRAY(OLD.id))`

// mariaFires is watchFires.
const mariaFires = `
CREATE TABLE fires (schedule BIGINT, fire_at BIGINT, at BIGINT, ` + mariaTx + `

CREATE TABLE sent (job INT, ` + mariaTx + `

CREATE TRIGGER watch_fires AFTER UPDATE ON scheduled_messages FOR EACH ROW IF NEW.available_after <> OLD.available_after THEN
  INSERT INTO fires (schedule, fire_at, at) VALUES (OLD.id, OLD.available_after, ` + mariaNow + `); END IF

CREATE TRIGGER watch_sent AFTER INSERT ON consumer_messages FOR EACH ROW INSERT INTO sent (job) VALUES (JSON_VALUE(NEW.payload, '$.n'))`
