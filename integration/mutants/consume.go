//go:build unix

package main

func inTxn(names string) suite { return tests("integration/txn", names) }

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
		{"error: a lost lease counts for the others of a batch", in("group.call", drop("errs[i] = releaseCancelled(ctx, errs[i])")),
			inOutbox("TestALeaseLostForOneOfABatchCostsTheOthersNothing"), `since the lease of another was lost`},
		{"deadline: a late message runs", in("executor.expired", always("now.After")), inOutbox("TestARetryAfterItsDeadlineDoesNotRun"),
			`want one, before the deadline|gave up waiting`},
		{"circuit: an open one counts attempts", in("Circuit.Ended", never("open")), inOutbox("TestAnOpenCircuitWritesNothing/sqlite"),
			`want 200|want it untouched`},
		{"stop: one message stops the whole batch", in("besideStopped", never("errs[i] != nil")), inOutbox("TestStoppingOneOfABatch/sqlite"),
			`without an attempt counted`},
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

// batchMutants break what the messages of one batch owe to each other.
func batchMutants() []mutant {
	return []mutant{
		{"batch: failed messages are batched again", in("task.groupable", without("failed(t)")), inOutbox("TestOneErrorIsEverybodys/sqlite"),
			`want all at once, then one by one`},
		{"batch: order is lost if the first message has no key",
			in("newKeyOrder", replace("!slices.ContainsFunc(tasks, inOrder)", "!inOrder(tasks[0])")),
			inOutbox("TestOneWithoutAKeyLeavesTheOthersTheirOrder"), `got the last of each key`},
		{"batch: what follows an unreadable payload runs", in("bus.ConsumeBatch", never("slices.Contains(stuck, m.OrderingKey)")),
			inOutbox("TestWhatComesBehindAnUnreadablePayloadWaits/sqlite"), `want a1 and not a3`},
		{"batch: a failure counts for those behind it", in("keyOrder.releaseBehind", never("failed[o.before(m.task)]")),
			inOutbox("TestABatchThatFailsIsAFailureOfTheFirstOfEachKey"), `want one of each failed, the others released`},
		{"batch: a group goes on past a failed message of the key", in("keyOrder.mayRun", always("o.done(before)")),
			inOutbox("TestTransactionalMessagesOfAKeyRunInOrder/in_groups/sqlite"), `out of order`},
	}
}
