package storetest

import (
	"strings"

	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func diagnoseCases() []testCase {
	return []testCase{
		{"every part can be looked at", diagnoseAll},
		{"every index is known", diagnoseIndexes},
		{"an index that is lost can be made again", diagnoseLostIndex},
		{"settings are no mistakes", diagnoseMistakes},
	}
}

func diagnoseAll(k *kit) {
	for _, part := range []store.Vital{store.Weaknesses, store.Connections, store.Indexes, store.DeadRows, store.Holders} {
		d, err := k.store.Schema.Diagnose(k.ctx, k.db, part)
		k.must("diagnose", err)
		if part == store.Connections && !d.Absent && (d.Used < 1 || d.Most < d.Used) {
			k.Errorf("connections: got %d of %d, want one at least", d.Used, d.Most)
		}
	}
}

// diagnoseIndexes compares the indexes in the migrations with the existing ones.
func diagnoseIndexes(k *kit) {
	k = k.with(bus.Tables{Prefix: "t_"}) // which sets the library's names apart from those that databases give
	k.migrate()
	lost, of, err := k.store.Schema.LostIndexes(k.ctx, k.db)
	k.must("lost indexes", err)
	equal(k, "lost", lost, nil)
	d, err := k.store.Schema.Diagnose(k.ctx, k.db, store.Indexes)
	k.must("indexes", err)
	var named []string
	for _, index := range d.Indexes {
		if strings.HasPrefix(index.Name, k.tables.Prefix) && !strings.HasSuffix(index.Name, "_key") && !strings.HasSuffix(index.Name, "_pkey") {
			named = append(named, index.Name)
		}
	}
	if len(named) != of || of < 10 {
		k.Errorf("indexes: got %d that should be there, want those that are: %v", of, named)
	}
}

func diagnoseLostIndex(k *kit) {
	const name = "poisoned_messages_newest"
	drop := `DROP INDEX ?`
	if k.db.Dialect().Name() == dialect.MySQL {
		drop += ` ON ` + k.tables.Prefix + `poisoned_messages`
	}
	_, err := k.db.NewRaw(drop, k.table(name)).Exec(k.ctx)
	k.must("drop", err)
	lost, _, err := k.store.Schema.LostIndexes(k.ctx, k.db)
	k.must("lost indexes", err)
	if len(lost) != 1 || lost[0].Name != k.tables.Prefix+name || lost[0].Invalid {
		k.Fatalf("lost: got %+v, want %s", lost, name)
	}
	_, err = k.db.NewRaw(lost[0].Statement).Exec(k.ctx)
	k.must("make again", err)
	lost, _, err = k.store.Schema.LostIndexes(k.ctx, k.db)
	k.must("lost indexes", err)
	equal(k, "lost afterwards", lost, nil)
}

func diagnoseMistakes(k *kit) {
	mistakes, err := k.store.Schema.Mistakes(k.ctx, k.db)
	k.must("mistakes", err)
	equal(k, "mistakes", mistakes, nil)
}
