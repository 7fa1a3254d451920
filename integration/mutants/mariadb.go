//go:build unix

package main

const (
	mariaClaim  = "internal/store/mariadb/claim.go"
	mariaSettle = "internal/store/mariadb/settle.go"
	mariaFence  = "internal/store/mariadb/fence.go"
	listing     = "internal/store/dialect/lists.go" // SQLite's, too
)

func onMariaDB(tests string) suite { return suite{pkg: inStore, tests: tests} }

// mariaClaimMutants break what a claim rests on where it takes several statements.
func mariaClaimMutants() []mutant {
	const meanwhile = "^TestClaimSeesWhatHappenedMeanwhile$/^mariadb$"
	return []mutant{
		{
			name: "MariaDB: claims not asked for once rows are locked", file: mariaClaim, suite: onMariaDB(meanwhile + "/^claimed"), says: `got map\[c0:10 c1:10\], want map\[c0:10\]`,
			changes: []change{{"h WHERE h.id IN (?)\nUNION ALL", "h WHERE h.id IN (?) AND FALSE\nUNION ALL"}},
		},
		{
			name: "MariaDB: claim without READ COMMITTED", file: "internal/txn/handle.go", suite: onMariaDB(meanwhile + "/^claimed"), says: `got map\[c0:10 c1:10\], want map\[c0:10\]`,
			changes: []change{{"return RunInTx(ctx, db, &sql.TxOptions{Isolation: sql.LevelReadCommitted}, func", "_ = sql.LevelReadCommitted\n\treturn RunInTx(ctx, db, nil, func"}},
		},
		{
			name: "MariaDB: a late pause is not asked for", file: mariaClaim, suite: onMariaDB(meanwhile + "/^paused"), says: `got map\[c0:10 c1:10\], want map\[c0:10\]`,
			changes: []change{{"if !taken[p.ID] && !paused[p.ConsumerType] {", "if !taken[p.ID] {"}},
		},
		{
			name: "MariaDB: what was put off meanwhile is claimed", file: mariaClaim, suite: onMariaDB(meanwhile + "/^put_off"), says: `got map\[c0:10 c1:10\], want map\[c0:10\]`,
			changes: []change{{"WHERE m.crashes BETWEEN ? AND ? AND m.available_after <= {now} FOR UPDATE SKIP LOCKED`", "WHERE m.crashes BETWEEN ? AND ? FOR UPDATE SKIP LOCKED`"}},
		},
		{
			name: "MariaDB: nobody looks behind what is locked", file: mariaClaim, suite: onMariaDB("^TestMariaDBClaimersDoNotStarveEachOther$"), says: `got 0 messages`,
			changes: []change{{"	l.limit *= 2\n", "	l.limit = 0\n"}},
		},
		{
			name: "MariaDB: those that repeat take no turns", file: "internal/txn/handle.go", suite: onMariaDB("^TestMariaDBSurfacesNoConflicts$"), says: `got error .*1213`,
			changes: []change{{"return repeatInTurn(ctx, db, fn)", "_ = repeatInTurn"}},
		},
		{
			name: "MariaDB: the poll reads the whole table", file: mariaClaim, suite: onMariaDB("^TestMariaDBPlans$"), says: `plan: got "SCAN m`,
			changes: []change{{"NULL AS held FROM {messages} m FORCE INDEX ({prefix}consumer_messages_due)", "NULL AS held FROM {messages} m IGNORE INDEX ({prefix}consumer_messages_due)"}},
		},
		{
			name: "bar 1 on MariaDB: claims not asked for once rows are locked", file: mariaClaim, suite: bar("1-kills-mariadb"), says: `I3: `,
			changes: []change{{"h WHERE h.id IN (?)\nUNION ALL", "h WHERE h.id IN (?) AND FALSE\nUNION ALL"}, {"case !held[c.ID]:", "case true:"}},
		},
	}
}

// mariaSettleMutants do so for what is settled, recovered and fenced.
func mariaSettleMutants() []mutant {
	const underStore = "^TestStore$/^mariadb$/"
	return []mutant{
		{
			name: "MariaDB: settle without membership", file: listing, suite: onMariaDB(underStore + "^settle_guards$"), says: `settle_guard\.go:\d+: settled:`,
			changes: withoutMembership(),
		},
		{
			name: "MariaDB: settle under anybody's claim", file: mariaSettle, suite: onMariaDB(underStore + "^settle_guards$"), says: `settle_guard\.go:\d+: (settled|claims|messages):`,
			changes: []change{{"ON c.id = j.id WHERE c.owner = ? FOR UPDATE`", "ON c.id = j.id WHERE ? <> '' FOR UPDATE`"}},
		},
		{
			name: "MariaDB: release counts an attempt", file: listing, suite: onMariaDB(underStore + "^settle$"), says: `settle\.go:\d+: messages?:`,
			changes: mariaReleaseCounts(),
		},
		{
			name: "MariaDB: crash not counted", file: mariaSettle, suite: onMariaDB(underStore + "^recover$"), says: `recover\.go:\d+: crashes`,
			changes: mariaCrashNotCounted(),
		},
		{
			name: "MariaDB: crash poisons without solo", file: listing, suite: onMariaDB(underStore + "^recover$"), says: `recovered without solo:`,
			changes: []change{{"case solo && counted+1 >= int64(maxCrashes):", "case counted+1 >= int64(maxCrashes):"}},
		},
		{
			name: "MariaDB: the fence does not ask for the claim", file: mariaFence, suite: onMariaDB(underStore + "^transaction$"), says: `fence, (release|another owner|a foreign claim)`,
			changes: []change{{"\t\tfor _, c := range live {\n\t\t\tif c.ID == msg.Claim && slices.Contains(c.MessageIDs, msg.ID) {\n\t\t\t\theld = append(held, msg.ID)\n\t\t\t}\n\t\t}", "\t\theld = append(held, msg.ID)"}},
		},
		{
			name: "MariaDB: the fence asks for the claim before it has the row", file: mariaFence, suite: onMariaDB("^TestMariaDBFenceAsksForTheClaimLast$"), says: `fence: got`,
			changes: []change{
				{"\tif err := m.Query(ctx, tx, statement, dialect.Ordered(ids)).Scan(ctx, &locked); err != nil {\n\t\treturn nil, err\n\t}\n\tvar live []struct {\n\t\tdialect.Leased `bun:\",extend\"`\n\t\tPID            int64  `bun:\"pid\"`\n\t\tPath           string `bun:\"path\"`\n\t}\n\tif err := m.Query(ctx, tx, claimsSQL, bun.List(claims), f.Owner).Scan(ctx, &live); err != nil {",
					"\tvar live []struct {\n\t\tdialect.Leased `bun:\",extend\"`\n\t\tPID            int64  `bun:\"pid\"`\n\t\tPath           string `bun:\"path\"`\n\t}\n\tif err := m.Query(ctx, tx, claimsSQL, bun.List(claims), f.Owner).Scan(ctx, &live); err != nil {\n\t\treturn nil, err\n\t}\n\tif err := m.Query(ctx, tx, statement, dialect.Ordered(ids)).Scan(ctx, &locked); err != nil {"}},
		},
		{
			name: "MariaDB: a transaction that has ended is committed", file: mariaFence, suite: suite{pkg: inOutbox, tests: "^TestMariaDBTransactionThatEndsEarly$"}, says: `effects: got those of attempts that add up to`,
			changes: []change{{"_, err := tx.NewRaw(`RELEASE SAVEPOINT ` + fencePoint).Exec(ctx); err != nil {", "_, err := tx.NewRaw(`SELECT 1`).Exec(ctx); err != nil {"}},
		},
		{
			name: "MariaDB: rows are locked by a scan", file: mariaSettle, suite: onMariaDB(underStore + "^recover$"), says: `recover\.go:\d+:`,
			changes: []change{{"`SELECT m.id, m.crashes FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE SKIP LOCKED`", "`SELECT m.id, m.crashes FROM {messages} m WHERE JSON_CONTAINS(?, m.id) FOR UPDATE SKIP LOCKED`"}},
		},
		{
			name: "MariaDB: a changed row tells what was inserted", file: "internal/store/mariadb/keys.go", suite: onMariaDB(underStore + "^insert$"), says: `insert\.go:\d+:`,
			changes: []change{{"n == len(keys)", "n > 0"}},
		},
		{
			name: "MariaDB: a snapshot tells which insert ids are free", file: "internal/store/mariadb/keys.go", suite: suite{pkg: inOutbox, tests: "^TestReservedInsertIDsAreFree$"}, says: `want a duplicate`,
			changes: []change{{"WHERE k.id IS NULL LOCK IN SHARE MODE", "WHERE k.id IS NULL"}},
		},
		{
			name: "MariaDB: what is locked by its insert id counts as free", file: mariaSettle, suite: onMariaDB("^TestMariaDBSettlesWhatIsFree$"), says: `settle what is free: got`,
			changes: []change{{"\tblocked = append(blocked, byInsertID...)\n", "\t_ = byInsertID\n"}},
		},
		{
			name: "MariaDB: recovery reads the whole table", file: mariaSettle, suite: onMariaDB("^TestMariaDBPlans$"), says: `plan: got "SCAN m`,
			changes: []change{{"`SELECT m.id, m.crashes FROM {ids} {messages} m FORCE INDEX (PRIMARY) ON m.id = j.id FOR UPDATE SKIP LOCKED`", "`SELECT m.id, m.crashes FROM {messages} m WHERE JSON_CONTAINS(?, m.id) FOR UPDATE SKIP LOCKED`"}},
		},
	}
}

func mariaCrashNotCounted() []change {
	return []change{{"SET m.crashes = j.crashes`", "SET m.crashes = m.crashes`"}}
}

func mariaReleaseCounts() []change {
	return []change{{"\t\tcase Failed, Snoozed:\n", "\t\tcase Release:\n\t\t\tr.Outcome = Failed\n\t\t\tagain = append(again, r)\n\t\tcase Failed, Snoozed:\n"}}
}

// withoutMembership has every result count whose claim is held.
func withoutMembership() []change {
	return []change{{"\treturn held, l.Dialect.Run(ctx, tx, l.SQL.Forget, ended)", "\theld = nil\n\tfor _, r := range results {\n\t\tif slices.ContainsFunc(live, func(c Leased) bool { return c.ID == r.Claim }) {\n\t\t\theld = append(held, r)\n\t\t}\n\t}\n\treturn held, l.Dialect.Run(ctx, tx, l.SQL.Forget, ended)"}}
}

// mariaBarMutants are caught by whole processes.
func mariaBarMutants() []mutant {
	return []mutant{
		{
			name: "bar 4 on MariaDB: settle without membership", file: listing, suite: bar("4-paused-mariadb"), says: `sent: a stale write was accepted`,
			changes: []change{{"\treturn held, l.Dialect.Run(ctx, tx, l.SQL.Forget, ended)", "\t_ = held\n\treturn results, l.Dialect.Run(ctx, tx, l.SQL.Forget, ended)"}},
		},
		{
			name: "bar 4 on MariaDB: the fence asks for nothing", file: mariaFence, suite: bar("4-paused-mariadb"), says: `transaction, fencing: a stale write was accepted`,
			changes: []change{{"if !slices.Contains(locked, state{msg.ID, msg.Attempts, msg.Stored()}) {\n\t\t\tcontinue\n\t\t}\n\t\tfor _, c := range live {\n\t\t\tif c.ID == msg.Claim && slices.Contains(c.MessageIDs, msg.ID) {",
				"for range 1 {\n\t\t\tif slices.ContainsFunc(locked, func(s state) bool { return s.ID == msg.ID }) {"}},
		},
		{
			name: "bar 5 on MariaDB: crash not counted", file: mariaSettle, suite: bar("5-killers-mariadb"), says: `got a death of a worker beyond the 3`,
			changes: mariaCrashNotCounted(),
		},
		{
			name: "bar 7 on MariaDB: release counts an attempt", file: listing, suite: bar("7-sigterm-mariadb"), says: `messages with attempts or crashes: got \d+, want none`,
			changes: mariaReleaseCounts(),
		},
		{
			name: "bar 11 on MariaDB: schedules are read without a lock", file: "internal/store/schedule.go", suite: bar("11-schedules-mariadb"), says: `got \d+ fires, \d+ of them with exactly one message, and \d+ messages, want as many`,
			changes: []change{{`selectSchedules+due+" {lock free}"`, `selectSchedules+due`}},
		},
	}
}
