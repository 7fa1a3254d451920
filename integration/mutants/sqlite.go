//go:build unix

package main

// sqliteSettleMutants break what a settle rests on where it takes several statements
// under one lock.
func sqliteSettleMutants() []mutant {
	const settle, lists = "internal/store/sqlite/settle.go", "internal/store/dialect/lists.go"
	const claim = "internal/store/sqlite/claim.go"
	on := func(tests string) suite { return suite{pkg: inStore, tests: tests} }
	return []mutant{
		{
			name: "settle without membership, on SQLite", file: lists, suite: on("^TestStore$/^sqlite$/^settle_guards$"), says: `settle_guard\.go:\d+: settled:`,
			changes: withoutMembership(),
		},
		{
			name: "settle under anybody's claim, on SQLite", file: settle, suite: on("^TestStore$/^sqlite$/^settle_guards$"), says: `settle_guard\.go:\d+: (settled|claims|messages):`,
			changes: []change{{"AND owner = ?`", "AND ? <> ''`"}},
		},
		{
			name: "a claim does not look again under the lock, on SQLite", file: claim, suite: on("^TestClaimSeesWhatHappenedMeanwhile$/^sqlite$/^claimed"), says: `got map\[c0:10 c1:10\], want map\[c0:10\]`,
			changes: []change{{"m.id NOT IN (` + heldSQL + `) AND m.consumer_type NOT IN (` + dialect.PausedNames + `)`\n\nconst recordSQL", "m.consumer_type NOT IN (` + dialect.PausedNames + `)`\n\nconst recordSQL"}},
		},
		{
			name: "a result looks through the list of its claim, on SQLite", file: settle, suite: suite{pkg: inStore, tests: "^TestSQLiteSettlesByLookups$"}, says: `plan: got "SCAN j VIRTUAL TABLE`,
			changes: []change{{"r WHERE m.id = r.mid`", "r, {claims} c, json_each(c.message_ids) j WHERE m.id = r.mid AND j.value = r.mid`"}},
		},
	}
}
