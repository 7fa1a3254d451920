//go:build unix

package main

// consumeMutants break what counts as an attempt, and what ends a run.
func consumeMutants() []mutant {
	return []mutant{
		{"error: a statement timeout is an outage",
			in(
				"dberr.classOfState",
				replace(`case "57014", transactionTimeout: return Timeout`, `case "57014", transactionTimeout: return Unavailable`),
			),
			tests("integration/dberr", "TestDriverErrorsAreClassified/postgres"), `statement timeout: got unavailable`},
		{"error: a timeout in a transaction is not counted",
			in("consumerTx.blame", replace("dberr.Unavailable", "dberr.Unavailable, dberr.Timeout, dberr.LockTimeout")),
			inOutbox("TestErrorsOfTheHandlerCountAsAttempts/postgres"), `gave up waiting: all are settled`},
		{
			"error: uncounted runs may repeat for ever",
			in("uncountedRuns.outcome", never("maxUncounted")),
			inOutbox("TestUncountedErrorsEndInAnAttempt"),
			`gave up waiting: poisoned`,
		},
		{"error: a lost conflict is not repeated at once", in("conflictTries", replace("3", "1")),
			inOutbox("TestLostConflictsAreRepeatedAtOnce"), `runs put back: got \d+, want 0`},
		{"deadline: a late message runs", in("executor.expired", always("now.After")), inOutbox("TestARetryAfterItsDeadlineDoesNotRun"),
			`want one, before the deadline|gave up waiting`},
		{"circuit: an open one counts attempts", in("Circuit.Ended", never("open")), inOutbox("TestAnOpenCircuitWritesNothing/sqlite"),
			`want 200|want it untouched`},
		{"stop: counts as a failure", in("task.asStopped", replace("bus.Discard(fmt.Errorf(…))", "err")),
			inOutbox("TestARunIsStoppedFromOutside/sqlite"), `want "cancelled"`},
		{"stop: is answered before the message goes",
			in("ClaimStore.settleWith", replace("s.operations.answerStop(ctx, tx, r.Message, owner, r.Stop)",
				"s.operations.answerStop(ctx, db, r.Message, owner, r.Stop)")),
			inOutbox("TestAStopIsAnsweredAsTheMessageGoes/postgres"), `looks at an answer`},
		{"turns: messages with keys are always first", in("consumer.parts", never("c.plainFirst")),
			inOutbox("TestKeyedAndKeylessTakeTurns/1"), `a fair part of each`},
	}
}
