//go:build unix

package main

const inPoison = "./integration/poison"

// poisonMutants change more than people have seen.
func poisonMutants() []mutant {
	with := func(test string) suite { return suite{pkg: inPoison, tests: test + "/^postgres$"} }
	return []mutant{
		{
			name: "poison: a batch goes past what was seen", file: "poison/batch.go", suite: with("^TestRequeueInBatches$"), says: `message 12: got requeued true`,
			changes: []change{{"f.AfterID, f.UpToID = b.After, b.UpTo", "f.AfterID = b.After"}},
		},
		{
			name: "poison: a batch does not go on", file: "poison/batch.go", suite: with("^TestRequeueInBatches$"), says: `got a cursor at`,
			changes: []change{{"f.AfterID, f.UpToID = b.After, b.UpTo", "f.UpToID = b.UpTo"}},
		},
		{
			name: "poison: what a message has become is another", file: "internal/store/poison.go", suite: with("^TestRequeueInBatches$"), says: `as what it has become`,
			changes: []change{{"of := message{w.MessageID, w.PendingKey}", "of := message{w.MessageID, w.PendingKey}\n\t\tw.ID = written[0].ID"}},
		},
		{
			name: "poison: a batch needs no end", file: "poison/batch.go", suite: suite{pkg: "./poison", tests: "^TestBadInputIsRefusedBeforeAnySQL$"}, says: `the database was used`,
			changes: []change{{"b.UpTo < 1", "b.UpTo < 0"}},
		},
		{
			name: "poison: an empty list of ids selects all", file: "poison/message.go", suite: suite{pkg: "./poison", tests: "^TestBadInputIsRefusedBeforeAnySQL$"}, says: `the database was used`,
			changes: []change{{"(n == 0 || n > mostIDs)", "n > mostIDs"}},
		},
		{
			name: "poison: the fingerprint of none selects all", file: "internal/store/poison.go", suite: with("^TestDiscardBatchGoesByTheFilter$"), says: `unclassified behind 5`,
			changes: []change{{`t.add(f.Fingerprint == Unclassified, "fingerprint IS NULL")`, `t.add(f.Fingerprint == Unclassified, "TRUE")`}},
		},
	}
}

// poisonShownMutants show people what is not so.
func poisonShownMutants() []mutant {
	const groups = "internal/store/poison_groups.go"
	with := func(test string) suite { return suite{pkg: inPoison, tests: test + "/^postgres$"} }
	return []mutant{
		{
			name: "poison: a brief list has payloads", file: "internal/store/dialect/fragments.go", suite: with("^TestBriefAndBounded$"), says: `want nothing large`,
			changes: []change{{"const BriefColumns = `id, ", "const BriefColumns = `payload, id, "}},
		},
		{
			name: "poison: groups of no fingerprint are left out", file: "internal/store/dialect/returning.go", suite: with("^TestGroups$"), says: `of "d": got`,
			changes: []change{{"p.fingerprint IS NULL)`\n\nconst nextPrint", "p.fingerprint = '')`\n\nconst nextPrint"}},
		},
		{
			name: "poison: on MariaDB groups end with the first consumer", file: "internal/store/mariadb/groups.go", suite: suite{pkg: inPoison, tests: "^TestGroups$/^mariadb$"}, says: `of "": got`,
			changes: []change{{`only := consumer != ""`, `only := true`}},
		},
		{
			name: "poison: groups are counted without a bound", file: groups, suite: suite{pkg: inStore, tests: "^TestPoisonReadsNoMoreThanItShows$/^sqlite$"}, says: `counted up to 100`,
			changes: []change{{"WHERE {group} LIMIT %d) x)", "WHERE {group} LIMIT 10 * %d) x)"}},
		},
		{
			name: "poison: the name of before counts beside the present one", file: "outbox/admin_names.go", suite: with("^TestOthersKnowWhoWasRenamed$"), says: `under the present name, want 2`,
			changes: []change{{"return len(b) - len(a)", "return len(a) - len(b)"}},
		},
		{
			name: "poison: a text is looked for as it is not stored", file: "internal/store/poison.go", suite: with("^TestPoisonedMessagesAreListed$"), says: `a backslash is a backslash: got 0`,
			changes: []change{{"errorlog.Quoted(f.Error)", "errorlog.Clean(f.Error, 0)"}},
		},
		{
			name: "poison: a preview knows one name only", file: groups, suite: with("^TestPreview$"), says: `want\n`,
			changes: []change{{"range names {", "range names[:0] {"}},
		},
		{
			name: "poison: an export is bounded by rows only", file: "poison/export.go", suite: with("^TestExport$"), says: `up to \d+ bytes at a time`,
			changes: []change{{"bytes > exportBytes && len(ids) > 0", "bytes < 0"}},
		},
		{
			name: "poison: misspelt names pass", file: "poison/check.go", suite: with("^TestCheckEdit$"), says: `Unknown:\[old\]`,
			changes: []change{{"\td.DisallowUnknownFields()\n", ""}},
		},
	}
}
