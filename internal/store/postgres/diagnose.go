package postgres

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

const (
	settingsSQL = `SELECT name, setting AS value FROM pg_catalog.pg_settings
  WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'autovacuum') AND setting = 'off' ORDER BY name`

	// connectionsSQL counts the backends that take a place of clients. Places kept for superusers
	// are not available to others, from PostgreSQL 16 on even more of them.
	connectionsSQL = `SELECT (SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datid IS NOT NULL AND backend_type IS DISTINCT FROM 'autovacuum worker'),
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int - COALESCE(current_setting('reserved_connections', true), '0')::int`

	// indexesSQL lists the indexes of the schema with our tables.
	indexesSQL = `SELECT c.relname AS name, i.indisvalid AND i.indisready AND i.indislive AS valid FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
  WHERE c.relnamespace = (SELECT t.relnamespace FROM pg_catalog.pg_class t WHERE t.oid = to_regclass('{messages}'))`

	deadSQL = `SELECT relname AS name, n_live_tup AS live, n_dead_tup AS dead FROM pg_catalog.pg_stat_all_tables
  WHERE relid IN (to_regclass('{messages}'), to_regclass('{claims}'), to_regclass('{poisoned}'), to_regclass('{slots}'), to_regclass('{rates}'), to_regclass('{recent}'), to_regclass('{inbox}'))
  ORDER BY n_dead_tup DESC, relname`

	// holdersSQL lists what VACUUM of our tables waits for. A transaction that has written also
	// holds it back by its own id. The start of another role's session may be hidden; how far it is
	// behind is not. A slot has no age, and one that keeps only the catalog is left out.
	holdersSQL = `SELECT * FROM (
SELECT 'transaction' AS kind, a.pid::bigint AS pid, COALESCE(a.application_name, '') AS name, GREATEST(age(a.backend_xmin), age(a.backend_xid))::bigint AS behind,
  COALESCE({micros now} - (EXTRACT(EPOCH FROM a.xact_start) * 1000000)::bigint, 0) AS micros
FROM pg_catalog.pg_stat_activity a
WHERE a.pid <> pg_backend_pid() AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
  AND (a.datid IS NULL OR a.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()))
UNION ALL
SELECT 'prepared transaction', 0, p.gid, age(p.transaction)::bigint, {micros now} - (EXTRACT(EPOCH FROM p.prepared) * 1000000)::bigint
FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
UNION ALL
SELECT 'replication slot', COALESCE(s.active_pid, 0)::bigint, s.slot_name, age(s.xmin)::bigint, 0 FROM pg_catalog.pg_replication_slots s WHERE s.xmin IS NOT NULL
) x ORDER BY micros DESC, behind DESC LIMIT 20`
)

// Diagnose reads the catalog and the statistics, which every role may read.
func (p *database) Diagnose(ctx context.Context, db bun.IDB, part dialect.Vital) (d dialect.Diagnosis, err error) {
	switch part {
	case dialect.Weaknesses:
		var off []struct{ Name, Value string }
		err = p.Query(ctx, db, settingsSQL).Scan(ctx, &off)
		for _, s := range off {
			d.Weaknesses = append(
				d.Weaknesses,
				dialect.Weakness{
					Name: s.Name, Value: s.Value, Want: "on", Damages: s.Name == "fsync" || s.Name == "full_page_writes",
					Idles: s.Name == "autovacuum",
				},
			)
		}
	case dialect.Connections:
		err = p.Query(ctx, db, connectionsSQL).Scan(ctx, &d.Used, &d.Most)
	case dialect.Indexes:
		err = p.Query(ctx, db, indexesSQL).Scan(ctx, &d.Indexes)
	case dialect.DeadRows:
		err = p.Query(ctx, db, deadSQL).Scan(ctx, &d.DeadRows)
	case dialect.Holders:
		err = p.Query(ctx, db, holdersSQL).Scan(ctx, &d.Holders)
	default:
		d.Absent = true
	}
	return d, err
}
