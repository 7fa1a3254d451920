package main

const (
	lanesClaimed = "internal/store/dialect/claim_lanes.go"
	laneGuard    = "internal/store/dialect/lane.go"
	laneRules    = "internal/store/dialect/lane_rules.go"
)

const atOnce, violated = "claimers_at_once", `order: got \d+ violations`

// ofLanes is a test of messages with keys.
func ofLanes(database, test string) suite {
	return suite{pkg: inStore, tests: "^TestStore$/^" + database + "$/^lanes$/^" + test}
}

// orderMutants break the order of messages with keys.
func orderMutants() []mutant {
	of := ofLanes
	return []mutant{
		{
			name: "claims of a consumer do not wait for each other", file: lanesClaimed, suite: of("postgres", atOnce), says: violated,
			changes: []change{{"ORDER BY consumer_type {lock}`", "ORDER BY consumer_type`"}},
		},
		{
			name: "a claim sees what was before it had the gate", file: "internal/store/postgres/postgres.go", suite: of("postgres", atOnce), says: violated + `|could not serialize`,
			changes: []change{{"BEGIN ISOLATION LEVEL READ COMMITTED; ", "BEGIN ISOLATION LEVEL REPEATABLE READ; "}},
		},
		{
			name: "lanes that are held are taken", file: laneRules, suite: of("sqlite", atOnce), says: violated,
			changes: []change{{"freeLane = `l.lane NOT IN ({busy lanes}) AND ", "freeLane = `(1 = 1 OR l.lane NOT IN ({busy lanes})) AND "}},
		},
		{
			name: "lanes that are parked are taken", file: laneRules, suite: of("sqlite", atOnce), says: violated,
			changes: []change{{"AND p.lane = l.lane AND p.parks)\n", "AND p.lane = l.lane AND p.parks AND 1 = 0)\n"}},
		},
		{
			name: "what is not due is passed over", file: lanesClaimed, suite: of("sqlite", atOnce), says: violated,
			changes: []change{{"if over = over || !p.Due || p.Crashes != hidden || !known; over {", "if over = over || p.Crashes != hidden || !known; over || !p.Due {"}},
		},
		{
			name: "lanes are free once the first of a claim is settled", file: pgSettling, suite: of("postgres", atOnce), says: violated,
			changes: []change{{"«, lanes = k.lanes»", "«, lanes = NULL»"}},
		},
		{
			name: "what is requeued comes last", file: "internal/store/dialect/returning.go", suite: of("sqlite", atOnce), says: violated,
			changes: []change{{"p.order_key, p.lane, p.rank\n\t\tFROM", "p.order_key, p.lane, p.rank + 100000\n\t\tFROM"}},
		},
		{
			name: "places are handed out in blocks", file: "internal/store/postgres/migrations/0006_order.sql", suite: of("postgres", "places_are_those"), says: `order:`,
			changes: []change{{"CACHE 1 OWNED", "CACHE 20 OWNED"}},
		},
		{
			name: "a hint counts within a lane", file: "internal/store/postgres/claim_lanes.go", suite: of("postgres", atOnce), says: violated,
			changes: []change{{"AND m.lane IS NOT NULL{runnable} ORDER BY m.lane, m.rank LIMIT ?) r", "AND m.lane IS NOT NULL AND m.rank > 40{runnable} ORDER BY m.lane, m.rank LIMIT ?) r"}},
		},
		{
			name: "all of a lane have crashed", file: "internal/store/dialect/lists.go", suite: of("sqlite", "crashed_messages"), says: `recovered:`,
			changes: []change{{"there && !(ordered && seen[c.Lanes[i]]) {", "there && !(false && ordered) {"}},
		},
		{
			name: "all of a lane have crashed, on PostgreSQL", file: pgLease, suite: of("postgres", "crashed_messages"), says: `recovered:`,
			changes: []change{{"SELECT DISTINCT ON (d.id, COALESCE(CASE WHEN m.rank < ` + dialect.FirstInstant + ` THEN u.lane END, u.mid)) m.id", "SELECT m.id"}},
		},
		{
			name: "who is poisoned by crashes parks nothing", file: pgLease, suite: of("postgres", "crashed_messages"), says: `which parks it`,
			changes: []change{{"lane IS NOT NULL AND (SELECT g.parks FROM {gates} g WHERE g.consumer_type = dying.consumer_type)", "FALSE"}},
		},
		{
			name: "messages with keys are like others", file: laneGuard, suite: of("sqlite", "what_has_no_order"), says: `without regard to keys`,
			changes: []change{{"const hidden = -10_000", "const hidden = 0"}},
		},
	}
}

// mariaOrderMutants do so for what MariaDB has of its own.
func mariaOrderMutants() []mutant {
	of := func(test string) suite { return ofLanes("mariadb", test) }
	return []mutant{
		{
			name: "MariaDB: claims of a consumer do not wait for each other", file: lanesClaimed, suite: of(atOnce), says: violated,
			changes: []change{{"ORDER BY consumer_type {lock}`", "ORDER BY consumer_type`"}},
		},
		{
			name: "MariaDB: lanes are free once the first of a claim is settled", file: mariaSettle, suite: of(atOnce), says: violated,
			changes: []change{{"«, lanes = ?»", "«, lanes = IF(? IS NULL, '', NULL)»"}},
		},
		{
			name: "MariaDB: what is requeued comes last", file: "internal/store/mariadb/edit.go", suite: of(atOnce), says: violated,
			changes: []change{{"row.OrderKey, row.Rank)", "row.OrderKey, row.Rank+100000)"}},
		},
		{
			name: "MariaDB: a hint counts within a lane", file: "internal/store/mariadb/claim_lanes.go", suite: of(atOnce), says: violated,
			changes: []change{{"AND l.lane = ? ORDER BY", "AND l.lane = ? AND l.rank > 40 ORDER BY"}, {"AND l.lane = j.lane ORDER BY", "AND l.lane = j.lane AND l.rank > 40 ORDER BY"}},
		},
		{
			name: "MariaDB: who is poisoned by crashes parks nothing", file: mariaSettle, suite: of("crashed_messages"), says: `which parks it`,
			changes: []change{{"k.id IS NOT NULL AND (SELECT g.parks FROM {gates} g WHERE g.consumer_type = m.consumer_type)", "FALSE"}},
		},
		{
			name: "MariaDB: insert ids decide about the order", file: "internal/store/mariadb/insert.go", suite: suite{pkg: inOutbox, tests: "^TestOrderIsThatOfTheCall$/^mariadb$"}, says: `want \[1 2 3 5 6\]`,
			changes: []change{{"if row.Rank != 0 {", "if row.Rank < 0 {"}},
		},
		{
			name: "MariaDB: messages with keys that are held count as ready", file: "internal/store/mariadb/stats.go", suite: of("messages_with_keys_are_counted"), says: `ready, delayed, leased`,
			changes: []change{{"SUM(x.due AND x.free)", "SUM(x.due)"}},
		},
		{
			name: "MariaDB: who recovers waits for a gate", file: mariaSettle, suite: of("nobody_but"), says: `recover:`,
			changes: []change{{"WHERE g.consumer_type = m.consumer_type)\nFROM", "WHERE g.consumer_type = m.consumer_type FOR UPDATE)\nFROM"}},
		},
	}
}

// runMutants break how a process runs messages of a key.
func runMutants() []mutant {
	on := func(tests string) suite { return suite{pkg: inOutbox, tests: tests} }
	return []mutant{
		{
			name: "messages of a run start at once", file: "outbox/dispatcher.go", suite: on("^TestMessagesOfAKeyRunInOrder$/^sqlite$"), says: `runs out of order`,
			changes: []change{{"if head != nil && t.row.Lane != 0 && t.row.Lane == head.row.Lane &&", "if false &&"}},
		},
		{
			name: "a run goes on after a failure", file: "outbox/runs.go", suite: on("^TestMessagesOfAKeyRunInOrder$/^sqlite$"), says: `runs out of order`,
			changes: []change{{"!m.passed || w.run.stopping", "w.run.stopping"}},
		},
		{
			name: "a group runs messages of a key past one that failed", file: "outbox/turns.go", suite: on("^TestTransactionalMessagesOfAKeyRunInOrder$/^in_groups$/^sqlite$"), says: `out of order`,
			changes: []change{{"return t.done(before) || slices", "return true || slices"}},
		},
		{
			name: "a batch settles what comes behind a message that its layers failed", file: "outbox/turns.go", suite: on("^TestALayerThatFailsADoneMessageHoldsUpThoseBehindIt$/^sqlite$"), says: `want 1 to 5, and 2 to 5 once more`,
			changes: []change{{"<-t[before].settled; before.passed {", "<-t[before].settled; true {"}},
		},
		{
			name: "a batch that fails is a failure of those behind the first, too", file: "outbox/turns.go", suite: on("^TestABatchThatFailsIsAFailureOfTheFirstOfEachKey$"), says: `want 2 failed, 4 released`,
			changes: []change{{"if failed[t.before(m.task)] {", "if false {"}},
		},
		{
			name: "keys of a paused consumer are claimed", file: laneRules, suite: on("^TestAPausedConsumerTakesNoKeys$/^sqlite$"), says: `gave up waiting: what was claimed|while it was paused`,
			changes: []change{{"AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type {names})`", "AND NOT EXISTS (SELECT 1 FROM {paused} u WHERE u.consumer_type {names} AND 1 = 0)`"}},
		},
		{
			name: "insert ids decide about the order", file: "internal/store/insert.go", suite: on("^TestOrderIsThatOfTheCall$/^postgres$"), says: `want \[1 2 5 6 7 8 10 11\]`,
			changes: []change{{"return len(rows) > 1 && slices", "return len(rows) > 1000 && slices"}},
		},
		{
			name: "an old name's messages run beside the new one's", file: laneRules, suite: on("^TestOrderHoldsAcrossARename$/^sqlite$"), says: `runs out of order`,
			changes: []change{{"condition, values = condition+renamed, append(values, n.NameList(others))", "_ = renamed"}},
		},
		{
			name: "leftovers of an order stay", file: "outbox/poller.go", suite: on("^TestMessagesWithKeysOutliveTheOrder$/^sqlite$"), says: `gave up waiting: both ran`,
			changes: []change{{"for _, name := range r.dispatcher.adopt(names) {", "for _, name := range names[:0] {"}},
		},
	}
}

// perKeyMutants break how many messages of a key run at once, or in a time.
func perKeyMutants() []mutant {
	of := func(database, test string) suite {
		return suite{pkg: inStore, tests: "^TestStore$/^" + database + "$/^per_key$/^" + test}
	}
	const atOnce, violated = "claimers_at_once", `bound: got \d+ violations|the most of a key`
	return []mutant{
		{
			name: "what a key has in claims does not count", file: laneRules, suite: of("sqlite", atOnce), says: violated,
			changes: []change{{"all.of[h.Lane] -= h.N", "_ = h.N"}},
		},
		{
			name: "what is held of a key does not count", file: laneRules, suite: of("sqlite", "what_waits"), says: `in the place of one that failed`,
			changes: []change{{"all.of[h.Lane] -= h.N", "all.of[h.Lane] -= 0 * h.N"}},
		},
		{
			name: "what a claim has is claimed again", file: laneRules, suite: of("sqlite", atOnce), says: violated + `|are left after`,
			changes: []change{{`" AND m.rank <= {micros now} AND m.id NOT IN ({held ids})"`, `" AND m.rank <= {micros now}"`}},
		},
		{
			name: "what waits stays in front of its key", file: pgSettling, suite: of("postgres", "what_waits"), says: `want when it is due`,
			changes: []change{{"«, rank = ` + dialect.Moved(\"m.rank\", \"{now} + r.delay * interval '1 microsecond'\", micros) + `»", ""}},
		},
		{
			name: "of a key in any order the first alone has crashed", file: "internal/store/dialect/lists.go", suite: of("sqlite", "of_those_of_a_key"), says: `recovered:`,
			changes: []change{{"there && !(ordered && seen[c.Lanes[i]]) {", "there && !seen[c.Lanes[i]] {\n\t\t\tordered = true"}},
		},
		{
			name: "of a key in any order the first alone has crashed, on PostgreSQL", file: pgLease, suite: of("postgres", "of_those_of_a_key"), says: `recovered:`,
			changes: []change{{"DISTINCT ON (d.id, COALESCE(CASE WHEN m.rank < ` + dialect.FirstInstant + ` THEN u.lane END, u.mid))", "DISTINCT ON (d.id, COALESCE(u.lane, u.mid))"}, {"ORDER BY d.id, COALESCE(CASE WHEN m.rank < ` + dialect.FirstInstant + ` THEN u.lane END, u.mid), u.n", "ORDER BY d.id, COALESCE(u.lane, u.mid), u.n"}},
		},
		{
			name: "the rates of keys are not spent", file: laneRules, suite: of("sqlite", "rates_of_keys"), says: `ran after`,
			changes: []change{{"DO UPDATE SET used_to = excluded.used_to`", "DO UPDATE SET used_to = {now}`"}},
		},
		{
			name: "keys in front have all the turns", file: lanesClaimed, suite: suite{pkg: inOutbox, tests: "^TestFewWorkersServeAllKeys$/^a_share_each_of_many$/^sqlite$"}, says: `want few|gave up waiting`,
			changes: []change{{"turns && (elsewhere || len(near) > r.Limit) ||", "false ||"}},
		},
		{
			name: "crashed messages of a key run at once", file: laneRules, suite: suite{pkg: inOutbox, tests: "^TestCrashedMessagesKeepToTheBound$/^sqlite$"}, says: `at once: got`,
			changes: []change{{"counted := s.PerKey > 0 &&", "counted := s.PerKey > 1 &&"}},
		},
		{
			name: "what is freed while a claim is under way is forgotten", file: "outbox/lanes.go", suite: suite{pkg: "./outbox", tests: "^TestWhatIsFreedDuringAClaimIsAskedForAgain$"}, says: `freed meanwhile: got it asked for again: false`,
			changes: []change{{"news.Left && l.frees != o.parts[0].frees {", "news.Left && false {"}},
		},
		{
			name: "few keys leave each other out by turns that never come", file: lanesClaimed, suite: of("sqlite", "a_few_keys"), says: `messages of the others`,
			changes: []change{{"return r.Lanes.PerKey == 0 && news.Full", "return news.Full"}},
		},
		{
			name: "a cursor passes what another claim has locked and dropped", file: "outbox/cursors.go", suite: suite{pkg: "./outbox", tests: "^TestLooksMoveCursors$"}, says: `cursor: got`,
			changes: []change{{"c.start.Before(looked), c.drops != drops:", "c.start.Before(looked):"}},
		},
	}
}
