//go:build unix

package main

// adminMutants have operators read too much, miss something, or change what they have not seen.
func adminMutants() []mutant {
	onOutbox := func(test string) suite { return suite{pkg: inOutbox, tests: test + "/^postgres$"} }
	return []mutant{
		{
			name: "admin: a page examines all there is", file: "internal/store/pending_examine.go", suite: suite{pkg: inStore, tests: underStore + "^examine$"}, says: `matches of page 0|the last one examined`,
			changes: []change{{"start.args...), most)", "start.args...), 1<<20)"}, {"append(args, most), values", "append(args, 1<<20), values"}},
		},
		{
			name: "admin: what was examined last is forgotten", file: "internal/store/pending_examine.go", suite: suite{pkg: inStore, tests: underStore + "^examine$"}, says: `examining|page 41|the last one examined`,
			changes: []change{{"ID: rows[0].SeenID, Keyed: f.After.Keyed", "ID: rows[0].SeenID + 1, Keyed: f.After.Keyed"}},
		},
		{
			name: "admin: a bulk change goes beyond what was seen", file: "internal/store/pending_batch.go", suite: onOutbox("^TestAdminChangesWhatMatches$"), says: `rescheduled: got`,
			changes: []change{{"t.add(upTo != 0, ", "t.add(upTo < 0, "}},
		},
		{
			name: "admin: a bulk change looks at all there is", file: "internal/store/pending_batch.go", suite: onOutbox("^TestAdminLooksAtAPartAtATime$"), says: `the first part: got`,
			changes: []change{{"t.args...), findChunk)", "t.args...), 1<<30)"}},
		},
		{
			name: "admin: what a header has is not compared", file: "internal/store/pending_find.go", suite: onOutbox("^TestAdminFinds$"), says: `header of message|a value in other letters: got`,
			changes: []change{{"{instr}(m.headers, ?) > 0", "{instr}(m.headers, ?) >= 0"}},
		},
		{
			name: "admin: a search begins anywhere", file: "internal/store/pending_find.go", suite: onOutbox("^TestAdminFinds$"), says: `want it near its time`,
			changes: []change{{"next.CreatedAt.After(around)", "next.CreatedAt.Before(around)"}},
		},
		{
			name: "admin: parked events are listed twice", file: "internal/store/subscriptions.go", suite: suite{pkg: "./integration/eventlog", tests: "^TestAdminOfProjections$/^postgres$"}, says: `parked behind the first: got`,
			changes: []change{{"version = ? AND position > ? ORDER BY", "version = ? AND position >= ? ORDER BY"}},
		},
		{
			name: "admin: a head is all of the payload", file: "outbox/admin.go", suite: onOutbox("^TestAdminGetsHeads$"), says: `the first 8 bytes: got`,
			changes: []change{{"for end > 0 && !utf8", "for end < 0 && !utf8"}},
		},
	}
}
