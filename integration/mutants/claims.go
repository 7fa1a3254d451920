//go:build unix

package main

// claimMutants break what makes a claim the only one, and what has every message found.
func claimMutants() []mutant {
	return []mutant{
		{"claim: recorded without a second look at the claims",
			in("postgres.recordSQL", text("WHERE x NOT IN (SELECT unnest(message_ids) FROM {claims})", "")),
			inStore("TestLedgerRecordDropsRowsClaimedSinceThePick/one_claim_holds*"), `messages in two claims: got 6`},
		{"claim: at the server's default isolation", in("postgres.beginSQL", text("ISOLATION LEVEL READ COMMITTED", "")),
			inStore("TestLedgerClaimsOnceUnderAnyDefaultIsolation/repeatable_read"), `got it in claims \d+ and \d+, want one`},
		{"claim: a server that ignores READ COMMITTED is accepted", in("Store.Ready", never("server.Name")),
			inOutbox("TestReadCommittedMustBeEffective"), `got error <nil>, want outbox.ErrUnsupportedServer`},
		{"claim: the cursor passes what another claim dropped", in("wantCursor.claimed", never("c.drops")),
			tests("internal/engine", "TestPollsMoveCursors"), `cursor: got`},
		{"claim: only the first sweep is run", in("sweeper.due", replace("!s.running && !now.Before(s.next)", "s.next.IsZero()")),
			inOutbox("TestLateCommitsAreFound/sqlite"), `the late one ran`},
		{"claim: one consumer may hold all workers", in("capacity.starts", replace("max(cp.config.Concurrency/8, 1)", "0")),
			inOutbox("TestASlowConsumerDoesNotDelayOthers"), `the quick one waited for up to`},
		{"claim: a backlog keeps the places that it shares", in("planner.roomLocked", never("pl.capacity.crowdedOut")),
			inOutbox("TestABacklogLeavesPlacesToConsumersThatShareThem"), `of the backlog ran before the other`},
		{"claim: higher priorities are not looked for", in("postgres.database.Claim", drop("picks = append(picks, prior...)")),
			inOutbox("TestHigherPrioritiesComeFirst/postgres"), `want \[urgent x 10 old x 5`},
	}
}

// suspectMutants break how messages that may have killed a process are run, and blamed.
func suspectMutants() []mutant {
	blamed := func(test string) suite { return tests("internal/engine", test) }
	return []mutant{
		{"suspect: a crash is not counted",
			in("postgres.recoverSQL", text("h.crashes + 1 ELSE LEAST(h.crashes + 1,", "h.crashes ELSE LEAST(h.crashes,")),
			inStore("TestStore/postgres/recover"), `recover\.go:\d+: crashes`},
		{"suspect: poisoned without having run alone",
			in("postgres.recoverSQL", text("h.id AND h.solo AND", "h.id AND"), text("NOT (h.solo AND h.crashes", "NOT (h.crashes")),
			inStore("TestStore/postgres/recover"), `recovered without solo:`},
		{"suspect: recovered right after an outage", in("recoverer.mayRecover", without("rc.outage.Stable")),
			inOutbox("TestReadsDoNotEndAnOutageOfWrites"), `messages with a crash: got \d+ now`},
		{
			"suspect: recovered right after a start",
			in("recoverer.mayRecover", without("rc.graceEnds")),
			inOutbox("TestAFreshProcessLetsOwnersRenew"),
			`renewal right after the outage: got \[\]`,
		},
		{"suspect: blamed alone while others are in flight", in("quarantine.plan", without("s.longRunning")),
			blamed("TestASoloRunDoesNotWaitForEver"), `limit 1, solo true, want`},
		{"suspect: a solo run is blamed for the next", in("quarantine.claimed", never("r.Solo")),
			blamed("TestASoloRunIsNotBlamedForTheNext"), `want it acquitted`},
		{
			"suspect: convicted on an old look",
			in("quarantine.requestSolo", without("now.Sub(s.looked)")),
			blamed("TestAProcessThatRarelyLooksConvictsNoOther"),
			`the last look is too old`,
		},
		{"suspect: one that may not start keeps a place",
			both(in("capacity.keptForCrashed", without("cp.startable")), in("capacity.mayStartCrashed", without("cp.mayStart"))),
			inOutbox("TestCrashedAtItsConcurrencyLeavesTheSharedSlot"), `want 50 within a lease`},
	}
}
