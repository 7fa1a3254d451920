package postgres

import (
	"context"
	"regexp"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Server asks version() first: other servers lack most of what follows.
func (p *database) Server(ctx context.Context, db bun.IDB) (dialect.Server, error) {
	var said string
	if err := db.NewRaw(`SELECT version()`).Scan(ctx, &said); err != nil {
		return dialect.Server{}, err
	}
	server := serverOf(said)
	if server.Why != "" {
		return server, nil
	}
	var marks []string
	err := db.NewRaw(marksSQL).Scan(ctx, &marks)
	if err != nil && (server.Name == "" || dberr.IsUnavailable(err)) {
		return dialect.Server{}, err
	}
	for _, mark := range marks {
		switch {
		case mark == citusMark:
			return p.undistributed(ctx, db, server)
		case mark == dsqlMark:
			return dialect.Server{Name: "Aurora DSQL", Said: said, Why: whyDSQL}, nil
		case strings.HasPrefix(mark, spannerMark):
			return dialect.Server{Name: "Cloud Spanner", Said: said, Why: whySpanner}, nil
		}
	}
	return server, nil
}

const (
	citusMark   = "pg_catalog.pg_dist_partition"
	dsqlMark    = "sys.iam_pg_role_mappings"
	spannerMark = "spanner_sys."

	whyCockroach = "it cannot write a table twice in one statement (0A000), which settling needs: use PostgreSQL"
	whyDSQL      = "it has no savepoints, no sequences and no READ COMMITTED: use PostgreSQL"
	whySpanner   = "it has no savepoints, no partial indexes and no SKIP LOCKED: use PostgreSQL"
)

// marksSQL looks for relations that identify servers without a name, or with PostgreSQL's.
const marksSQL = `SELECT n.nspname || '.' || c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = 'sys' AND c.relname = 'iam_pg_role_mappings' OR n.nspname = 'spanner_sys' OR n.nspname = 'pg_catalog' AND c.relname = 'pg_dist_partition'`

// built matches how PostgreSQL describes its build. Packagers add words before "on"; forks change
// the number or the end, or leave the rest out. On Windows there is no "on".
var built = regexp.MustCompile(`^PostgreSQL \d+(\.\d+)*(devel|(alpha|beta|rc)\d+)?( .*)?, compiled by .+, (32|64)-bit$`) // immutable

// serverOf returns the server with such a version().
func serverOf(said string) dialect.Server {
	server := dialect.Server{Said: said}
	switch {
	case strings.HasPrefix(said, "CockroachDB"):
		server.Name, server.Why = "CockroachDB", whyCockroach
	case said == "PostgreSQL 14.1", strings.Contains(said, "Spanner"): // the version that PGAdapter returns by default
		server.Name, server.Why = "Cloud Spanner", whySpanner
	case strings.Contains(said, "DSQL"):
		server.Name, server.Why = "Aurora DSQL", whyDSQL
	case strings.Contains(said, "-YB-"):
		server.Name = "YugabyteDB"
	case !built.MatchString(said):
		server.Name = "a server that is not known as PostgreSQL"
	}
	return server
}

// distributedSQL finds tables that Citus has distributed or copied to all nodes. Tables that it has
// in its catalog and left in place have no colocation.
const distributedSQL = `SELECT d.logicalrelid::text FROM pg_catalog.pg_dist_partition d
  WHERE (d.partmethod <> 'n' OR d.repmodel = 't' OR d.colocationid <> 0) AND d.logicalrelid IN (
    to_regclass('{messages}'), to_regclass('{claims}'), to_regclass('{poisoned}'), to_regclass('{schedules}'), to_regclass('{paused}'),
    to_regclass('{recent}'), to_regclass('{slots}'), to_regclass('{rates}'), to_regclass('{key rates}'), to_regclass('{stops}'),
    to_regclass('{gates}'), to_regclass('{breakers}'), to_regclass('{inbox}'), to_regclass('{migrations}'),
    to_regclass('{events}'), to_regclass('{streams}'), to_regclass('{head}'), to_regclass('{subscriptions}'),
    to_regclass('{projections}'), to_regclass('{parked}'), to_regclass('{snapshots}')) ORDER BY 1`

// undistributed refuses Citus if it has distributed one of our tables; otherwise it is PostgreSQL.
func (p *database) undistributed(ctx context.Context, db bun.IDB, server dialect.Server) (dialect.Server, error) {
	var tables []string
	if err := p.Query(ctx, db, distributedSQL).Scan(ctx, &tables); err != nil {
		return dialect.Server{}, err
	}
	if len(tables) > 0 {
		server.Name, server.Why = "Citus", "it cannot lock rows of several shards, which claims need: leave the library's tables "+
			"undistributed; distributed are: "+strings.Join(
			tables, ", ",
		)
	}
	return server, nil
}
