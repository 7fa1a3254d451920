//go:build unix

package main

// sqliteSettleMutants break what a settle rests on where it takes several statements
// under one lock.
func sqliteSettleMutants() []mutant {
	const settle = "internal/store/sqlite/settle.go"
	return []mutant{
		{
			name: "settle without membership, on SQLite", file: settle, suite: suite{pkg: inStore, tests: "^TestStore$/^sqlite$/^settle_guards$"}, says: `settle_guard\.go:\d+: settled:`,
			changes: []change{{"\t\tsettled = dialect.Settled{Applied: len(held)}\n", "\t\theld = nil\n\t\tfor _, r := range results {\n\t\t\tfor _, c := range live {\n\t\t\t\tif c.ID == r.Claim {\n\t\t\t\t\theld = append(held, r)\n\t\t\t\t}\n\t\t\t}\n\t\t}\n\t\tsettled = dialect.Settled{Applied: len(held)}\n"}},
		},
		{
			name: "settle under anybody's claim, on SQLite", file: settle, suite: suite{pkg: inStore, tests: "^TestStore$/^sqlite$/^settle_guards$"}, says: `settle_guard\.go:\d+: (settled|claims|messages):`,
			changes: []change{{"AND owner = ? RETURNING id, message_ids`", "AND ? <> '' RETURNING id, message_ids`"}},
		},
		{
			name: "a result looks through the list of its claim, on SQLite", file: settle, suite: suite{pkg: inStore, tests: "^TestSQLiteSettlesByLookups$"}, says: `plan: got "SCAN j VIRTUAL TABLE`,
			changes: []change{{"r WHERE m.id = r.mid`", "r, {claims} c, json_each(c.message_ids) j WHERE m.id = r.mid AND j.value = r.mid`"}},
		},
	}
}
