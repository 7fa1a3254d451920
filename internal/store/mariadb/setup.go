package mariadb

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

//go:embed migrations
var migrations embed.FS // immutable

// Migrating holds a lock of this connection: a change of tables commits, so no transaction could
// exclude others. For the same reason each statement of a migration can be run again.
func (m *database) Migrating(ctx context.Context, db *bun.DB, fn func(tx bun.IDB) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var database string
	if err := conn.NewRaw(`SELECT COALESCE(DATABASE(), '')`).Scan(ctx, &database); err != nil {
		return err
	}
	if database == "" {
		return dberr.ErrNoDatabase
	}
	const name = `CONCAT('asyncmonolith.', MD5(DATABASE()))`
	var locked int
	if err := conn.NewRaw(`SELECT COALESCE(GET_LOCK(`+name+`, 600), 0)`).Scan(ctx, &locked); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if locked != 1 {
		return fmt.Errorf("lock: another instance has been migrating for ten minutes")
	}
	defer func() {
		_, released := conn.NewRaw(`DO RELEASE_LOCK(` + name + `)`).Exec(context.WithoutCancel(ctx))
		err = errors.Join(err, released)
	}()
	if _, err := conn.NewRaw(m.Expand(`CREATE TABLE IF NOT EXISTS {migrations} (version INT PRIMARY KEY, applied_at TIMESTAMP NOT NULL) ENGINE = InnoDB`)).Exec(ctx); err != nil {
		return fmt.Errorf("create table of migrations: %w", err)
	}
	return fn(conn)
}

// Check reads back the settings that decide whether text is stored as sent, and whether writes can
// be trusted.
func (m *database) Check(ctx context.Context, db bun.IDB) (dialect.Settings, error) {
	var limits []string // first, and one row: a limit would cut later results
	if err := db.NewRaw(`SELECT CAST(@@sql_select_limit AS CHAR)`).Scan(ctx, &limits); err != nil {
		return dialect.Settings{}, err
	}
	if len(limits) != 1 || limits[0] != noSelectLimit {
		return dialect.Settings{}, fmt.Errorf(
			"sql_select_limit %s: queries would not return all rows: leave the server's default", strings.Join(limits, ""),
		)
	}
	var rows []struct {
		Name  string `bun:"Variable_name"`
		Value string `bun:"Value"`
	}
	err := db.NewRaw(`SHOW VARIABLES WHERE Variable_name IN ('version', 'sql_mode', 'read_only', 'log_bin', 'binlog_format', 'wsrep_on',
		'character_set_client', 'character_set_connection', 'character_set_results', 'max_allowed_packet', 'autocommit', 'completion_type', 'sql_safe_updates', 'foreign_key_checks')`).Scan(ctx, &rows)
	if err != nil {
		return dialect.Settings{}, err
	}
	set := make(map[string]string)
	for _, row := range rows {
		set[row.Name] = row.Value
	}
	return dialect.Settings{RowLocks: true}, errors.Join(settingMistakes(set)...)
}

const (
	noBackslashes  = "NO_BACKSLASH_ESCAPES"
	errBackslashes = "sql_mode has " + noBackslashes + ": bun escapes with backslashes, so text could end its literal: remove the mode"
)

func (m *database) Literals(ctx context.Context, db bun.IDB) error {
	var mode string
	if err := db.NewRaw(`SELECT @@sql_mode`).Scan(ctx, &mode); err != nil {
		return err
	}
	if strings.Contains(strings.ToUpper(mode), noBackslashes) {
		return errors.New(errBackslashes)
	}
	return nil
}

// noSelectLimit is the server's default.
const noSelectLimit = "18446744073709551615"

// minPacket is the size of the largest insert once it is escaped.
const minPacket = 16 << 20

// settingMistakes returns errors for settings under which the library cannot keep its promises.
func settingMistakes(set map[string]string) (mistakes []error) {
	mistake := func(bad bool, format string, args ...any) {
		if bad {
			mistakes = append(mistakes, fmt.Errorf(format, args...))
		}
	}
	has := func(variable, value string) bool { return strings.Contains(strings.ToUpper(set[variable]), value) }
	mistake(!knows(set["version"]), "version %s: MariaDB 10.6 or newer is needed, for SKIP LOCKED and JSON_TABLE (or MySQL 8)", set["version"])
	mistake(has("sql_mode", noBackslashes), errBackslashes)
	mistake(!has("sql_mode", "STRICT_TRANS_TABLES") && !has("sql_mode", "STRICT_ALL_TABLES"),
		"sql_mode %q: STRICT_TRANS_TABLES is needed, or text that does not fit is silently truncated", set["sql_mode"])
	mistake(has("read_only", "ON") || has("read_only", "1"), "the database is read-only: connect to the primary")
	mistake(has("wsrep_on", "ON"),
		"the server is part of a Galera cluster, whose nodes do not see each other's row locks: use a single server")
	mistake(has("log_bin", "ON") && has("binlog_format", "STATEMENT"),
		"binlog_format STATEMENT: SKIP LOCKED and READ COMMITTED need ROW or MIXED")
	mistake(has("sql_mode", "EMPTY_STRING_IS_NULL"),
		"sql_mode has EMPTY_STRING_IS_NULL: empty text would be stored as NULL: remove the mode")
	for _, name := range []string{"character_set_client", "character_set_connection", "character_set_results"} {
		mistake(!has(name, "UTF8MB4"), "%s %q: utf8mb4 is needed: leave the driver's default, or set charset=utf8mb4", name, set[name])
	}
	mistake(!has("autocommit", "ON") && !has("autocommit", "1"), "autocommit is off: statements outside of transactions need it")
	mistake(!has("completion_type", "NO_CHAIN"),
		"completion_type %s: NO_CHAIN is needed, or a commit could begin another transaction", set["completion_type"])
	mistake(has("sql_safe_updates", "ON"),
		"sql_safe_updates is on: the server would refuse to delete messages by a list of ids: set sql_safe_updates to 0")
	mistake(!has("foreign_key_checks", "ON") && !has("foreign_key_checks", "1"),
		"foreign_key_checks is off: an insert id would stay pending without its message: leave the server's default")
	packet, err := strconv.ParseInt(set["max_allowed_packet"], 10, 64)
	mistake(err != nil || packet < minPacket, "max_allowed_packet %s: %d or more is needed", set["max_allowed_packet"], minPacket)
	return mistakes
}

// knows reports whether a server of that version supports the statements.
func knows(version string) bool {
	maria := strings.Contains(version, "MariaDB")
	version = strings.TrimPrefix(version, "5.5.5-") // the prefix that MariaDB sends to old clients
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	if !maria {
		return major >= 8
	}
	return major > 10 || major == 10 && minor >= 6
}
