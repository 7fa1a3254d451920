//go:build unix

package main

// cursorMutants are mistakes in what to claim, and when.
func cursorMutants() []mutant {
	const cursors = "outbox/cursors.go"
	outbox := func(test string) suite { return suite{pkg: "./outbox", tests: "^" + test + "$"} }
	return []mutant{
		{
			name: "cursor trusted after a short claim", file: cursors, suite: outbox("TestClaimsBeginAtTheirCursor"), says: `after a short claim: got cursor`,
			changes: []change{{"\tc.start = edge\n\treturn", "\treturn"}},
		},
		{
			name: "a sweep moves nothing back", file: cursors, suite: outbox("TestLooksMoveCursors"), says: `cursor: got`,
			changes: []change{{"case due && place.Before(stood):", "case false:"}},
		},
		{
			name: "a claim under way undoes a sweep", file: cursors, suite: outbox("TestLooksMoveCursors"), says: `cursor: got`,
			changes: []change{{"case c.start.Before(looked), c.drops != drops: // moved back meanwhile", "case c.drops != drops:"}},
		},
		{
			name: "a look under way undoes a sweep", file: cursors, suite: outbox("TestLooksMoveCursors"), says: `cursor: got`,
			changes: []change{{"case c.start.Before(stood), stood.Before(from):", "case stood.Before(from):"}},
		},
		{
			name: "a sweep of what is new skips the old", file: cursors, suite: outbox("TestLooksMoveCursors"), says: `cursor: got`,
			changes: []change{{"case c.start.Before(stood), stood.Before(from):", "case c.start.Before(stood):"}},
		},
		{
			name: "no sweeps", file: "outbox/sweeper.go", suite: suite{pkg: inOutbox, tests: "^TestLateCommitsAreFound$/^sqlite$"}, says: `the late one ran`,
			changes: []change{{"return !s.running && !now.Before(s.next), s.took", "return s.next.IsZero(), s.took"}},
		},
		{
			name: "a sweep back ends at what is new", file: "outbox/sweeper.go", suite: suite{pkg: inOutbox, tests: "^TestWhatIsOldIsFoundBehindSlowLooks$"}, says: `both ran`,
			changes: []change{{"{10 * time.Second, 2 * time.Minute, 20 * time.Minute, 4 * time.Hour, 2 * 24 * time.Hour, 30 * 24 * time.Hour, 0}", "{10 * time.Second}"}},
		},
		{
			name: "claims recovered right after the start", file: "outbox/poller.go", suite: suite{pkg: inOutbox, tests: "^TestAFreshProcessLetsOwnersRenew$"}, says: `renewal right after the outage: got \[\]`,
			changes: []change{{"return r.outage.Stable() && !time.Now().Before(r.graceEnds())", "return r.outage.Stable()"}},
		},
		{
			name: "one consumer may hold all workers", file: "outbox/order.go", suite: suite{pkg: inOutbox, tests: "^TestASlowConsumerDelaysNobody$"}, says: `the quick one waited for up to`,
			changes: []change{{"return max(free-share, (free-c.running+1)/2, 0)", "return max(free-share+share, 0)"}},
		},
		{
			name: "a claim under way is a stray", file: "outbox/underway.go", suite: outbox("TestClaimsUnderWayAreNotStrays"), says: `got none under way`,
			changes: []change{{"return len(u.since) > 0 && u.since[0].Before(t)", "return false"}},
		},
		{
			name: "large errors are read before the cut", file: "internal/store/dialect/fragments.go", suite: suite{pkg: inStore, tests: "^TestAClaimReadsNoMoreThanItTakes$/^sqlite$"}, says: `a claim of 4 allocated`,
			changes: []change{{`, "m.errors", small("errors"))`, ")"}},
		},
	}
}

// courtesyMutants are mistakes by which one holds up others, or is told what is not so.
func courtesyMutants() []mutant {
	return []mutant{
		{
			name: "a slow look delays the wake-ups of others", file: "outbox/poller.go", suite: suite{pkg: inOutbox, tests: "^TestASlowLookDoesNotDelayWakeUpsOfOthers$"}, says: `a message of which others tell runs after 2\d`,
			changes: []change{{"pause = min(pause, took)", "pause = max(pause, took)"}},
		},
		{
			name: "wake-ups during a look have no pace", file: "outbox/wakepacer.go", suite: suite{pkg: inOutbox, tests: "^TestLooksForOthersStayRareOnASlowDatabase$"}, says: `looks in 5 s`,
			changes: []change{{"m.looked.Add(m.pace)), !m.looking", "m.looked.Add(m.pace)), true"}},
		},
		{
			name: "a long look silences the poller", file: "outbox/poller.go", suite: suite{pkg: "./outbox", tests: "^TestALongLookDoesNotSilenceThePoller$"}, says: `after a look of 5s`,
			changes: []change{{"min(10*time.Since(began), r.config.PollInterval)", "10*time.Since(began)"}},
		},
		{
			name: "a stop waits for claims", file: "outbox/run.go", suite: suite{pkg: inOutbox, tests: "^TestAStopWaitsForNoClaim$/^postgres$"}, says: `after the stop`,
			changes: []change{{"		stopClaims()\n	}\n", "		_ = stopClaims\n	}\n"}},
		},
		{
			name: "layers that run again see what they have changed", file: "outbox/deliver.go", suite: suite{pkg: inOutbox, tests: "^TestLayersThatRunAgainSeeWhatWasProduced$"}, says: `want what the layer does, once`,
			changes: []change{{"*batch[i] = *asGiven[i].Clone()", "_ = i"}},
		},
		{
			name: "what layers send is not all or nothing", file: "outbox/deliver.go", suite: suite{pkg: inOutbox, tests: "^TestWhatLayersSendInPartsIsAllOrNone$/^sqlite$"},
			says:    `want the layer's error and none`,
			changes: []change{{"if len(p.config.Layers) == 0 {", "if db != nil {"}},
		},
		{
			name: "steps run crashed messages side by side", file: "outbox/step.go", suite: suite{pkg: inOutbox, tests: "^TestStepsBlameNoNeighbour$/^sqlite$"}, says: `a step beside it: got true`,
			changes: []change{{"if r.current != nil || r.crashed != nil {", "if r.current != nil {"}},
		},
	}
}

// suspectMutants are mistakes in what runs apart.
func suspectMutants() []mutant {
	const suspicion = "outbox/quarantine.go"
	outbox := func(test string) suite { return suite{pkg: "./outbox", tests: "^" + test + "$"} }
	return []mutant{
		{
			name: "who does not run alone is blamed alone", file: suspicion, suite: outbox("TestASoloRunDoesNotWaitForEver"), says: `limit 1, solo true, want`,
			changes: []change{{"o.request.Solo = s.inFlight+s.reserved+s.outlasts == 0 && ", "o.request.Solo = "}},
		},
		{
			name: "who runs in company is blamed alone", file: suspicion, suite: outbox("TestSoloRunsGiveWayOnceTheySurvive"), says: `limit 20, solo true, want`,
			changes: []change{{"o.request.Solo = s.inFlight+s.reserved+s.outlasts == 0 && s.solo.n == 1", "o.request.Solo = s.inFlight+s.reserved == 0"}},
		},
		{
			name: "solo runs give way beside what kills", file: suspicion, suite: outbox("TestSoloRunsGiveWayOnceTheySurvive"), says: `limit 20, solo false, want`,
			changes: []change{{"\t\ts.solo = width{}\n\tcase", "\tcase"}},
		},
		{
			name: "a solo run that is called off keeps its worker", file: suspicion, suite: outbox("TestASoloRunThatIsCalledOffKeepsNoWorker"), says: `got it kept from the worker`,
			changes: []change{{"s.wanted, s.needsWorker = time.Time{}, false\n\tcase", "s.wanted = time.Time{}\n\tcase"}},
		},
		{
			name: "an old look will do", file: suspicion, suite: outbox("TestWhoLooksSeldomConvictsNobody"), says: `the last look is too old`,
			changes: []change{{" || now.Sub(s.looked) > s.lease/2)", ")"}},
		},
		{
			name: "nobody vanishes between looks", file: suspicion, suite: outbox("TestWhoLooksSeldomConvictsNobody"), says: `there was none for so long`,
			changes: []change{{"case !s.looked.IsZero() && began.Sub(s.looked) > s.lease/2:", "case false:"}},
		},
		{
			name: "young processes convict", file: suspicion, suite: outbox("TestAYoungProcessConvictsNobody"), says: `the process is young`,
			changes: []change{{"case (s.looked.Before(s.calm) || now.Sub(s.looked) > s.lease/2) && now.Before(s.mature):", "case false:"}},
		},
	}
}
