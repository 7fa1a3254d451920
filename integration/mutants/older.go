package main

// olderMutants break what holds beside programs of an older version.
func olderMutants() []mutant {
	on := func(tests string) suite { return suite{pkg: "./integration/older", tests: tests} }
	return []mutant{
		{
			name: "an older program finds messages with keys", file: "internal/store/dialect/written.go", suite: on("^TestKeysAreNotSeen$/^sqlite$"), says: `the older program ran: got`,
			changes: []change{{`fmt.Sprintf("(?, ?, ?, ?, ?, ?, ?, ?, %d, ?, ?, ?)", hidden)`, `"(?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)"`}},
		},
		{
			name: "what an older program has left stays", file: pgLease, suite: on("^TestWhatAnOlderProgramLeaves$/^postgres$"), says: `in the newer program: got \[\]`,
			changes: []change{{"FROM {claims} WHERE leased_until < {now}", "FROM {claims} WHERE lanes IS NOT NULL AND leased_until < {now}"}},
		},
		{
			name: "a migration that has lost a deadlock gives up", file: "internal/store/postgres/setup.go", suite: on("^TestMigratingBesideAnOlderProgram$"), says: `migrate: got`,
			changes: []change{{"!dberr.IsConflict(err)", "err == nil || !dberr.IsConflict(nil)"}},
		},
		{
			name: "a consumer without keys is taken for one in any order", file: "internal/store/insert.go", suite: suite{pkg: inOutbox, tests: "^TestOthersBesideKeysInAnyOrder$/^postgres$"}, says: `produce: `,
			changes: []change{{"	if c.Keyed() {\n		row.OrderKey, row.AnyOrder = m.OrderKey, !c.Ordered()\n	}", "	row.OrderKey, row.AnyOrder = m.OrderKey, !c.Ordered()"}},
		},
	}
}
