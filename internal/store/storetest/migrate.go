package storetest

import (
	"errors"
	"io/fs"
	"strings"
	"testing/fstest"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func migrateCases() []testCase {
	return []testCase{
		{"migrating again changes nothing", migrateAgain},
		{"eight instances migrate at once", migrateAtOnce},
		{"sets of tables migrate at once", migrateSideBySide},
		{"sets of tables migrate at once in a new schema", migrateInOneSchema},
		{"sets of tables do not see each other", tablesApart},
		{"the tables stand in the schema, with the prefix", tablesInSchema},
		{"missing tables are a schema error", schemaMissing},
		{"a table that is gone is a schema error", tableGone},
		{"a foreign table is left unchanged", foreignTable},
		{"older tables are a schema error", schemaOlder},
		{"newer tables are left alone", schemaNewer},
		{"the files can be run by another tool", migrateByHand},
		{"the files are a proper file system", migrationFiles},
	}
}

func (k *kit) versions() []int {
	k.Helper()
	var versions []int
	k.must("read versions", k.db.NewRaw("SELECT version FROM ? ORDER BY version", k.table("asyncmonolith_migrations")).Scan(k.ctx, &versions))
	return versions
}

func migrateAgain(k *kit) {
	ids := k.add("c", 2)
	before := k.versions()
	k.migrate()
	equal(k, "versions after migrating again", k.versions(), before)
	equal(k, "messages after migrating again", k.pending(), ids)
	k.must("check schema", k.store.Schema.CheckSchema(k.ctx, k.db))
}

func migrateAtOnce(k *kit) {
	versions := k.versions()
	fresh := k.with(bus.Tables{Prefix: k.tables.Prefix + "once_"})
	for _, err := range together(8, func(int) error { return fresh.store.Schema.Migrate(k.ctx, k.db) }) {
		k.Errorf("migrate with seven others: got error %v, want none", err)
	}
	equal(k, "versions", fresh.versions(), versions)
	k.must("check schema", fresh.store.Schema.CheckSchema(k.ctx, k.db))
	fresh.add("c", 1)
}

func migrateSideBySide(k *kit) { migrateSets(k, "") }

func migrateInOneSchema(k *kit) {
	if k.schemas() {
		migrateSets(k, k.tables.Prefix+"schema")
	}
}

// migrateSets has two instances each of four applications migrate at once.
func migrateSets(k *kit, schema string) {
	versions := k.versions()
	var sets []*kit
	for _, name := range []string{"a_", "b_", "c_", "d_"} {
		sets = append(sets, k.with(bus.Tables{Schema: schema, Prefix: k.tables.Prefix + name}))
	}
	for _, err := range together(2*len(sets), func(i int) error { return sets[i/2].store.Schema.Migrate(k.ctx, k.db) }) {
		k.Errorf("migrate beside other tables: got error %v, want none", err)
	}
	if k.Failed() {
		return
	}
	for _, set := range sets {
		equal(k, "versions of "+set.tables.Prefix, set.versions(), versions)
	}
}

// schemas reports whether the database has schemas.
func (k *kit) schemas() bool {
	_, err := store.For(k.db.Dialect().Name(), bus.Tables{Schema: "s"})
	return err == nil
}

func tablesApart(k *kit) {
	other := k.with(bus.Tables{Prefix: k.tables.Prefix + "other_"})
	other.migrate()
	ids := k.add("c", 2)
	if c := other.claim(request("a", want("c", 10))); c.ID != 0 {
		k.Errorf("claim in other tables: got messages %v, want none", idsOf(c))
	}
	poll, err := other.store.Claims.Poll(k.ctx, k.db, []store.Want{want("c", 1)})
	k.must("poll", err)
	equal(k, "poll of other tables", poll, store.Poll{Now: poll.Now})
	k.take("a", "c", ids...)
	equal(k, "claims in other tables", other.claims(), nil)
}

func tablesInSchema(k *kit) {
	if !k.schemas() {
		if _, err := store.For(k.db.Dialect().Name(), bus.Tables{Schema: "s"}); !strings.Contains(err.Error(), "schema") {
			k.Errorf("store with a schema: got error %q, want one that speaks of schemas", err)
		}
		return
	}
	in := k.with(bus.Tables{Schema: k.tables.Prefix + "schema", Prefix: "p_"})
	in.migrate()
	in.migrate()
	k.must("check schema", in.store.Schema.CheckSchema(k.ctx, k.db))
	ids := in.add("c", 4)
	c := in.take("a", "c", ids...)
	in.settle("a", append(results(c, store.Poison, ids[0]), results(c, store.Failed, ids[1])...)...)
	equal(k, "held by the owner", in.extend("a"), []int64{c.ID})
	equal(k, "claims", in.claims()[0].Messages, list(ids[2:]...))
	k.pass(2 * lease)
	equal(k, "recovered", in.recover(3), store.Recovered{Claims: 1, Crashed: 2})
	equal(k, "poisoned", len(in.poisoned()), 1)
	equal(k, "messages outside of the schema", k.pending(), nil)
	unregistered, err := in.store.Claims.Unhandled(k.ctx, k.db, []store.Want{want("other", 1)})
	k.must("unregistered", err)
	equal(k, "unregistered", unregistered, []store.Unhandled{{ConsumerType: "c", PayloadType: payload}})
}

func schemaMissing(k *kit) {
	fresh := k.with(bus.Tables{Prefix: k.tables.Prefix + "none_"})
	if err := fresh.store.Schema.CheckSchema(k.ctx, k.db); !isSchemaError(err) {
		k.Errorf("check without tables: got %v, want ErrSchemaOutdated", err)
	}
}

func tableGone(k *kit) {
	_, err := k.db.NewRaw("ALTER TABLE ? RENAME TO ?", k.table("poisoned_messages"), bun.Ident(k.tables.Prefix+"elsewhere")).Exec(k.ctx)
	k.must("rename", err)
	for what, err := range map[string]error{"check": k.store.Schema.CheckSchema(k.ctx, k.db), "migrate": k.store.Schema.Migrate(k.ctx, k.db)} {
		if !errors.Is(err, dberr.ErrSchema) || !strings.Contains(err.Error(), k.tables.Prefix+"poisoned_messages") {
			k.Errorf("%s without a table that was there: got error %v, want ErrSchemaOutdated and its name", what, err)
		}
	}
}

// foreignTable is such as the library for .NET makes.
func foreignTable(k *kit) {
	for _, name := range []string{"consumer_messages", "scheduled_messages"} {
		fresh := k.with(bus.Tables{Prefix: k.tables.Prefix + name[:1] + "_"})
		theirs := fresh.tables.Prefix + name
		_, err := k.db.NewRaw("CREATE TABLE ? (id varchar(36) PRIMARY KEY, available_after bigint)", bun.Ident(theirs)).Exec(k.ctx)
		k.must("create", err)
		if err = fresh.store.Schema.Migrate(k.ctx, k.db); err == nil || !strings.Contains(err.Error(), theirs) ||
			!strings.Contains(err.Error(), "Tables.Prefix") {
			k.Errorf("migrate beside a foreign table: got error %v, want one that names %s and Tables.Prefix", err, theirs)
		}
		if err = fresh.store.Schema.CheckSchema(k.ctx, k.db); !errors.Is(err, dberr.ErrSchema) {
			k.Errorf("check beside a foreign table: got error %v, want ErrSchemaOutdated: nothing was made", err)
		}
	}
}

func schemaOlder(k *kit) {
	newest := k.versions()[len(k.versions())-1]
	_, err := k.db.NewRaw("DELETE FROM ? WHERE version = ?", k.table("asyncmonolith_migrations"), newest).Exec(k.ctx)
	k.must("forget the newest migration", err)
	if err := k.store.Schema.CheckSchema(k.ctx, k.db); !isSchemaError(err) {
		k.Errorf("check of older tables: got %v, want ErrSchemaOutdated", err)
	}
}

func schemaNewer(k *kit) {
	_, err := k.db.NewRaw("INSERT INTO ? (version, applied_at) VALUES (1000, CURRENT_TIMESTAMP)", k.table("asyncmonolith_migrations")).
		Exec(k.ctx)
	k.must("record a newer migration", err)
	versions := k.versions()
	k.must("check newer tables", k.store.Schema.CheckSchema(k.ctx, k.db))
	k.migrate()
	equal(k, "versions", k.versions(), versions)
}

func migrateByHand(k *kit) {
	fresh := k.with(bus.Tables{Prefix: k.tables.Prefix + "hand_"})
	files, err := fresh.store.Schema.Migrations()
	k.must("migrations", err)
	names, err := fs.Glob(files, "*.sql")
	k.must("list migrations", err)
	equal(k, "number of files", len(names), len(k.versions()))
	for _, name := range names {
		content, err := fs.ReadFile(files, name)
		k.must("read "+name, err)
		if strings.ContainsAny(string(content), "{}") {
			k.Errorf("%s: got a placeholder left in it, want the table names", name)
		}
		for _, statement := range statements(k, string(content)) {
			_, err = k.db.NewRaw(statement).Exec(k.ctx)
			k.must("run "+name, err)
		}
	}
	k.must("check schema", fresh.store.Schema.CheckSchema(k.ctx, k.db))
	fresh.migrate()
	equal(k, "versions", fresh.versions(), k.versions())
}

// statements cuts a file the way tools do for a database that takes one statement
// at a time.
func statements(k *kit, file string) []string {
	if k.db.Dialect().Name() != dialect.MySQL {
		return []string{file}
	}
	return strings.Split(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(file), ";")), ";\n")
}

func migrationFiles(k *kit) {
	files, err := k.store.Schema.Migrations()
	k.must("migrations", err)
	names, err := fs.Glob(files, "*.sql")
	k.must("list migrations", err)
	if err := fstest.TestFS(files, names...); err != nil {
		k.Errorf("file system: got %v, want a proper one", err)
	}
}

func isSchemaError(err error) bool {
	ok := errors.Is(err, dberr.ErrSchema)
	return ok
}
