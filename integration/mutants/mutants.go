//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one mistake.
type mutant struct {
	name    string
	file    string // from the root of the repository
	changes []change
	also    map[string][]change // of other files, where what one guard lets through another would stop
	suite
	// says matches what a test says of it. A mutant that does not compile, whose
	// SQL is refused, or that only takes the tests' time does not get to that.
	says string
}

// suite is what runs against a mutant.
type suite struct {
	pkg   string // of the tests
	tests string // what go test -run gets
	bar   string // of integration/chaos, in its short form
	all   bool   // of integration/console, with all data
}

func (s suite) String() string { return strings.TrimSpace(s.pkg + " " + s.tests + " " + s.bar) }

// bar is a run of integration/chaos.
func bar(name string) suite { return suite{pkg: "./integration/chaos", tests: "^TestBars$", bar: name} }

// change replaces a text that is in the file once.
type change struct{ old, new string }

const (
	postgres   = "internal/store/postgres/claim.go"
	pgSettling = "internal/store/postgres/settle.go"
	pgLease    = "internal/store/postgres/lease.go"
	inStore    = "./integration/store"
	inOutbox   = "./integration/outbox"
	inSchedule = "./integration/schedule"
	inTxn      = "./integration/txn"
	inClasses  = "./integration/dberr"
	underStore = "^TestStore$/^postgres$/"
)

// mutants are all there are.
func mutants() []mutant {
	return slices.Concat(
		claimMutants(),
		watchMutants(),
		planMutants(),
		cursorMutants(),
		suspectMutants(),
		courtesyMutants(),
		settleMutants(),
		crashMutants(),
		processMutants(),
		mariaClaimMutants(),
		mariaSettleMutants(),
		mariaBarMutants(),
		barMutants(),
		eventLogMutants(),
		sqliteSettleMutants(),
		guestMutants(),
		errorMutants(),
		scheduleMutants(),
		flowMutants(),
		boundMutants(),
		orderMutants(),
		mariaOrderMutants(),
		runMutants(),
		perKeyMutants(),
		olderMutants(),
		breakerMutants(),
		priorityMutants(),
		batchMutants(),
		batchChainMutants(),
		publishMutants(),
		recipientMutants(),
		adapterMutants(),
		moveMutants(),
		wireMutants(),
		logMutants(),
		receiveMutants(),
		parkMutants(),
		relayBarMutants(),
		logBarMutants(),
		healthMutants(),
		reportMutants(),
		doctorMutants(),
		poisonMutants(),
		poisonShownMutants(),
		adminMutants(),
		deskMutants(),
		seatMutants(),
		decisionMutants(),
		runnerMutants(),
		operationMutants(),
		commandMutants(),
		consoleMutants(),
		liveMutants(),
		awakeMutants(),
		refusedMutants(),
		busyMutants(),
	)
}

func claimMutants() []mutant {
	return []mutant{
		{
			name: "no re-check at record", file: postgres, suite: suite{pkg: inStore, tests: "^TestLedgerRecordDropsWhatPickFoundTooEarly$/^one_claim_holds"}, says: `messages in two claims: got 6`,
			changes: []change{{`SELECT x FROM unnest(?::bigint[]) x WHERE x NOT IN (SELECT unnest(message_ids) FROM {claims}))`, `SELECT x FROM unnest(?::bigint[]) x)`}},
		},
		{
			name: "claim without READ COMMITTED", file: "internal/store/postgres/postgres.go", suite: suite{pkg: inStore, tests: "^TestLedgerClaimsOnceUnderAnyDefaultIsolation$/^repeatable_read$"}, says: `got it in claims \d+ and \d+, want one`,
			changes: []change{{"BEGIN ISOLATION LEVEL READ COMMITTED; ", "BEGIN; "}},
		},
	}
}

// planMutants break what prepared statements and large batches rest on.
func planMutants() []mutant {
	const planned = "internal/store/postgres/planned.go"
	on := func(tests string) suite { return suite{pkg: inStore, tests: tests} }
	return []mutant{
		{
			name: "a prepared statement is used on another connection", file: planned, suite: on("^TestEveryConnectionPlansForItself$"), says: `got statements sent as text`,
			changes: []change{{"key = v.Interface()", "key = true"}},
		},
		{
			name: "what a pooler lost is not sent as text", file: planned, suite: on("^TestAPoolerThatLosesPlansIsNoticed$"), says: `claim: got 0 messages`,
			changes: []change{{"\treturn fn(session{database: p, IDB: conn, conn: conn})\n}", "\treturn nil\n}"}},
		},
		{
			name: "what a migration has changed is not prepared anew", file: planned, suite: on("^TestPlansThatAMigrationInvalidatesAreMadeAgain$"), says: `cached plan must not change result type`,
			changes: []change{{"case dberr.IsPlanStale(err):", "case false:"}},
		},
		{
			name: "a claim that may be committed is repeated", file: planned, suite: suite{pkg: inOutbox, tests: "^TestATrickleDoesNotPutOffTheKeeper$"}, says: `got 1 claims recovered`,
			changes: []change{{"|| begun || dead", "|| dead"}},
		},
		{
			name: "the keeper is put off by each message", file: "outbox/keeper.go", suite: suite{pkg: inOutbox, tests: "^TestATrickleDoesNotPutOffTheKeeper$"}, says: `got 1 claims recovered`,
			changes: []change{{"if idle { // else the next look is near, and must not be put off", "if idle || len(r.slots) > 0 {"}},
		},
		{
			name: "a batch above the bound", file: "outbox/order.go", suite: suite{pkg: "./outbox", tests: "^TestBatchesFollowTheRate$"}, says: `got 3125 asked for, want 2000`,
			changes: []change{{"min(max(finished/32, slowBatch), d.config.BatchSize)", "max(finished/32, slowBatch)"}},
		},
	}
}

func settleMutants() []mutant {
	return []mutant{
		{
			name: "settle without membership", file: pgSettling, suite: suite{pkg: inStore, tests: underStore + "^settle_guards$"}, says: `settle_guard\.go:\d+: settled:`,
			changes: []change{{"JOIN held h ON h.cid = r.cid AND h.mid = r.mid`", "JOIN live l ON l.id = r.cid`"}},
		},
		{
			// As a process would that keeps the list of what it claimed, and not of
			// what it has settled since.
			name: "the rest sent instead of subtracted", file: pgSettling, suite: suite{pkg: inStore, tests: underStore + "^settle_guards$"}, says: `settle_guard\.go:\d+: (settled|claims|messages):`,
			changes: []change{
				{"import (\n\t\"context\"\n", "import (\n\t\"context\"\n\t\"fmt\"\n\t\"slices\"\n\t\"strings\"\n\t\"sync\"\n"},
				{"// brieflySQL bounds", `var claimedBefore sync.Map

func (p *database) rests(ctx context.Context, db bun.IDB, r resultArrays) (rests []string) {
	for _, claim := range r.claims {
		var ids []int64
		_ = p.Query(ctx, db, "SELECT unnest(message_ids) FROM {claims} WHERE id = ?", claim).Scan(ctx, &ids)
		known, _ := claimedBefore.LoadOrStore(claim, ids)
		var rest []string
		for _, id := range known.([]int64) {
			if !slices.Contains(r.messages, id) {
				rest = append(rest, fmt.Sprint(id))
			}
		}
		rests = append(rests, strings.Join(rest, ","))
	}
	return rests
}

// brieflySQL bounds`},
				{"  SELECT h.cid, array_agg(h.mid) FILTER (WHERE r.mid IS NULL) AS ids«,\n    CASE WHEN bool_or(h.lane IS NOT NULL) THEN array_agg(h.lane) FILTER (WHERE r.mid IS NULL) END AS lanes»\n  FROM held h LEFT JOIN res r ON r.cid = h.cid AND r.mid = h.mid GROUP BY h.cid),",
					"  SELECT s.cid, NULLIF(string_to_array(s.ids, ','), '{}')::bigint[] AS ids\n  FROM unnest(?::bigint[], ?::text[]) s(cid, ids) JOIN live l ON l.id = s.cid),"},
				{"append(args, lease.Microseconds(), pgdialect.Array(r.printOf), pgdialect.Array(r.prints))...)", "append(args, pgdialect.Array(r.claims), pgdialect.Array(p.rests(ctx, db, r)), lease.Microseconds(), pgdialect.Array(r.printOf), pgdialect.Array(r.prints))...)"},
			},
		},
		{
			name: "settle under anybody's claim", file: pgSettling, suite: suite{pkg: inStore, tests: underStore + "^settle_guards$"}, says: `settle_guard\.go:\d+: (settled|claims|messages):`,
			changes: []change{{"c.message_ids«, c.lanes» FROM ` + brieflySQL + `, {claims} c WHERE c.id = ANY(?::bigint[]) AND c.owner = ? ORDER BY",
				"c.message_ids«, c.lanes» FROM ` + brieflySQL + `, {claims} c WHERE c.id = ANY(?::bigint[]) AND ? <> '' ORDER BY"}},
		},
		{
			name: "release counts an attempt", file: pgSettling, suite: suite{pkg: inStore, tests: underStore + "^settle$"}, says: `settle\.go:\d+: messages?:`,
			changes: releaseCounts(),
		},
	}
}

func crashMutants() []mutant {
	return []mutant{
		{
			name: "crash not counted", file: pgLease, suite: suite{pkg: inStore, tests: underStore + "^recover$"}, says: `recover\.go:\d+: crashes`,
			changes: crashNotCounted(),
		},
		{
			name: "crash poisons without solo", file: pgLease, suite: suite{pkg: inStore, tests: underStore + "^recover$"}, says: `recovered without solo:`,
			changes: []change{
				{"WHERE m.id = h.id AND h.solo AND h.crashes - h.base + 1 >= ?\n", "WHERE m.id = h.id AND h.crashes - h.base + 1 >= ?\n"},
				{"AND NOT (h.solo AND h.crashes - h.base + 1 >= ?))", "AND NOT (h.crashes - h.base + 1 >= ?))"},
			},
		},
		{
			name: "the fence does not ask for the claim", file: "internal/store/postgres/fence.go", suite: suite{pkg: inStore, tests: underStore + "^transaction$"}, says: `fence, (release|another owner|a foreign claim)`,
			changes: []change{{"AND EXISTS (SELECT 1 FROM {claims} c WHERE c.id = w.claim AND c.owner = ? AND m.id = ANY(c.message_ids))", "AND ? <> ''"}},
		},
	}
}

func processMutants() []mutant {
	return []mutant{
		{
			name: "settle all fetched", file: "outbox/ledger.go", suite: suite{pkg: inOutbox, tests: "^TestGracefulStopWithAHundredInFlight$|^TestBlockedHandlerDelaysNobody$"}, says: `removed: got \d+, want the \d+ that finished`,
			changes: []change{{"if entry.open == 0 && !entry.partial && !b.freeOnly && !slices", "if !entry.partial && !b.freeOnly && !slices"}},
		},
		{
			name: "claims recovered right after an outage", file: "outbox/poller.go", suite: suite{pkg: inOutbox, tests: "^TestReadsDoNotEndAnOutageOfWrites$"}, says: `messages with a crash: got \d+ now`,
			changes: []change{{"return r.outage.Stable() && !time.Now()", "return !time.Now()"}},
		},
		{
			name: "a handler begins after its lease", file: "outbox/worker.go", suite: suite{pkg: "./outbox", tests: "^TestNoHandlerBeginsAfterItsLease$"}, says: `one, lease over true: got 1 runs`,
			changes: []change{{"return c.ledger.live(c.lease, now) && !slices", "return true || c.ledger.live(c.lease, now) && !slices"}},
		},
		{
			name: "a batch begins after its lease", file: "outbox/group_tx.go", suite: suite{pkg: "./outbox", tests: "^TestNoHandlerBeginsAfterItsLease$"}, says: `many, lease over true: got 1 runs`,
			changes: []change{{"if err == nil && !g.worker.run.ledger.live(m.task.lease, time.Now()) {", "if err == nil && m == nil {"}},
		},
		{
			name: "delete before handler", file: "outbox/worker.go", suite: suite{pkg: inOutbox, tests: "^TestGracefulStopWithAHundredInFlight$"}, says: `removed: got \d+, want the \d+ that finished`,
			changes: deleteBeforeHandler(),
		},
		{
			name: "a failing message leaves its writes to its group", file: "internal/store/settle.go", suite: suite{pkg: inOutbox, tests: "^TestOneOfAGroupFailsAlone$"}, says: `message 7: got effects in attempts \[`,
			changes: []change{{"`ROLLBACK TO SAVEPOINT asyncmonolith`", "`SAVEPOINT asyncmonolith`"}},
		},
		{
			name: "a layer may go on when its message is settled", file: "outbox/worker.go", suite: suite{pkg: inOutbox, tests: "^TestLayerThatCallsWhatIsOver$"}, says: `the layer below, too late: got error`,
			changes: []change{{"\t\tt.innermost.Lock()\n", ""}},
		},
		{
			name: "a group answers for a commit that failed", file: "outbox/group_tx.go", suite: suite{pkg: inOutbox, tests: "^TestOneOfAGroupBreaksTheTransaction$"}, says: `message \d+: got effects in attempts \[\]`,
			changes: []change{{"\t\tg.oneByOne(s.done)\n", "\t\tanswer(s.done, nil)\n"}},
		},
		{
			name: "schedule advanced in another transaction", file: "schedule/fire.go", suite: suite{pkg: inSchedule, tests: "^TestAFireAndItsNextTimeAreOneCommit$"}, says: `the schedule is moved on when its message is committed already`,
			changes: []change{
				{"p.store.UpdateSchedule(ctx, tx, row.ID, change); err != nil {", "p.store.UpdateSchedule(ctx, tx, -1, change); err != nil {"},
				{"\tif len(sent) > 0 {\n",
					"\tfor _, row := range rows {\n\t\tif _, change, failed := p.plan(row); err == nil && failed == nil {\n" +
						"\t\t\t_, err = p.store.UpdateSchedule(ctx, p.db, row.ID, change)\n\t\t}\n\t}\n\tif len(sent) > 0 {\n"},
			},
		},
	}
}

func crashNotCounted() []change {
	return []change{{"CASE WHEN h.solo THEN h.crashes + 1 ELSE LEAST(h.crashes + 1, h.base + ? - 1) END", "CASE WHEN h.solo THEN h.crashes ELSE LEAST(h.crashes, h.base + ? - 1) END"}}
}

func releaseCounts() []change {
	return []change{
		{"CASE r.outcome WHEN 'failed' THEN 1 ELSE 0 END", "CASE WHEN r.outcome IN ('failed', 'release') THEN 1 ELSE 0 END"},
		{"r.outcome IN ('failed', 'snooze'))`", "r.outcome IN ('failed', 'snooze', 'release'))`"},
	}
}

func deleteBeforeHandler() []change {
	return []change{{"\terr = r.invoke(ctx, t, payload)\n",
		"\tif _, err := r.store.Remove(ctx, r.db, store.Session{}, t.row.ID); err != nil {\n\t\treturn err\n\t}\n\terr = r.invoke(ctx, t, payload)\n"}}
}

// apply returns the files with the mistake in them, by their paths from the root.
func (m mutant) apply(root string) (map[string]string, error) {
	changes := map[string][]change{m.file: m.changes}
	maps.Copy(changes, m.also)
	texts := make(map[string]string, len(changes))
	for file, of := range changes {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		text := string(content)
		for _, c := range of {
			if n := strings.Count(text, c.old); n != 1 {
				return nil, fmt.Errorf("%s: the text to replace is there %d times, want once: %.60q", file, n, c.old)
			}
			text = strings.Replace(text, c.old, c.new, 1)
		}
		texts[file] = text
	}
	return texts, nil
}
