//go:build unix

package main

// settleMutants break what keeps a result from counting under a claim that is gone.
func settleMutants() []mutant {
	guards := inStore("TestStore/postgres/settle_guards")
	return []mutant{
		{"settle: a message that left its claim",
			in("postgres.resultsSQL", text("JOIN held h ON h.cid = r.cid AND h.mid = r.mid", "JOIN live l ON l.id = r.cid")), guards,
			`settle_guard\.go:\d+: settled:`},
		{"settle: under the claim of another owner", in("postgres.settleSQL", text("AND c.owner = ?", "AND ? <> ''")), guards,
			`settle_guard\.go:\d+: (settled|claims|messages):`},
		{"settle: a release counts as an attempt", releaseAttempted(), inStore("TestStore/postgres/settle"), `settle\.go:\d+: messages?:`},
		{"settle: a claim that still has messages in flight is finished", in("ledger.takeLocked",
			replace("entry.open == 0 && !entry.partial && …", "!entry.partial && !b.freeOnly && !slices.ContainsFunc(results, needsSettle)")),
			inOutbox("TestGracefulStopWithAHundredInFlight|TestABlockedHandlerDoesNotDelayOthers"), `removed: got \d+, want the \d+ that finished`},
		{"settle: what others wait for waits", in("lease.pressing", replace("l.open == 0 && …", "false")),
			tests("internal/engine", "TestAPressingClaimIsSettledAtOnce"), `want that one`},
		{"settle: what a transaction has removed is settled apart", in("awaited", replace("!r.Gone", "true")),
			tests("internal/engine", "TestAPressingClaimIsSettledAtOnce"), `want it finished as a whole`},
		{"settle: removed before the consumer has run", removedFirst(), inOutbox("TestGracefulStopWithAHundredInFlight"),
			`removed: got \d+, want the \d+ that finished`},
		{"settle: waits for locked messages", in("postgres.settleFreeSQL", text("FOR UPDATE SKIP LOCKED), busy", "FOR UPDATE), busy")),
			inStore("TestPostgresSettlesUnlockedMessagesAtOnce"), `beside a locked message: got`},
		{"insert: a replaced message of the same call is written", in("withoutReplaced", replace("i >= by", "i >= by || true")),
			tests("integration/bustest", "TestTheFakeAgreesWithTheProducer/*"), `want, as of the producer`},
		{"decider: a snapshot may lose a part of the state", in("Decider.encoded", never("same")),
			inLog("TestStatesThatJSONLosesAreNotKept/sqlite"), `want 400`},
		{"settle: a result that cannot be stored holds up others", in("settler.persist", never("st.outage.Failed")),
			inOutbox("TestARefusedSettleDoesNotDelayOthers/a_timeout"), `gave up waiting: the others are settled`},
		{"keep: a settle that is sent again keeps a message twice",
			in("postgres.keepSQL", text("JOIN res r ON r.cid = k.cid AND r.mid = k.id", "")),
			inStore("TestStore/postgres/keep"), `keep\.go:\d+: (settle|consumed)`},
		{"keep: a result that does not count keeps its message", in("Lists.Settle", replace("KeptOf(held)", "KeptOf(results)")),
			inStore("TestStore/sqlite/keep"), `keep\.go:\d+: (settle|consumed)`},
		{"keep: a refused row keeps its message for ever",
			in("settlement.settleBare", replace(`result.Errors, result.Reason, result.Kept = "", "see the log", nil`,
				`result.Errors, result.Reason = "", "see the log"`)),
			inOutbox("TestWhatCannotBeKeptIsDone/sqlite"), `gave up waiting: all is consumed`},
		{"settle: a late poisoning gives its fingerprint",
			in("postgres.applySQL", text("f.cid = bad.cid AND f.mid = bad.id", "f.mid = bad.id")),
			inStore("TestStore/postgres/settle_guards"), `settle_guard\.go:\d+: `},
		{"keep: a claim that is finished as a whole keeps nothing", in("needsSettle", replace("r.Kept != nil", "false")),
			inOutbox("TestAConsumerKeepsWhatItConsumed"), `plain: got \d+ kept, \d+ of them distinct, want 30`},
		{"keep: a transaction keeps nothing", in("consumerTx.commit", replace("t.keep(statement, tasks)", "error(nil)")),
			inOutbox("TestAConsumerKeepsWhatItConsumed"), `tx: got 0 kept, 0 of them distinct, want 30`},
		{"settle: poisoned under an id that is taken",
			in("PoisonedID", text("CASE WHEN EXISTS (SELECT 1 FROM {poisoned} p WHERE p.id = {id})", "CASE WHEN FALSE")),
			inStore("TestPoisoningFindsAFreeID/sqlite"), `gave up waiting: poisoned again`},
		{"lease: not renewed", in("renewer.renew", replace("rn.store.Claims.Extend(…)", "[]int64(nil), error(nil)")),
			inOutbox("TestATrickleDoesNotPutOffTheKeeper"), `got 1 claims recovered`},
		{"lease: a consumer starts after it", in("call.held", returns("true")), tests("internal/engine", "TestNoHandlerBeginsAfterItsLease"),
			`one, lease over true: got 1 runs`},
		{"lease: a batch starts after it", both(in("group.tooLate", never("g.worker.executor.ledger.live")), in("call.held", returns("true"))),
			tests("internal/engine", "TestNoHandlerBeginsAfterItsLease"), `many, lease over true: got 1 runs`},
	}
}

func releaseAttempted() mistake {
	return in("postgres.applySQL", text("CASE r.outcome WHEN 'failed'", "CASE WHEN r.outcome IN ('failed', 'release')"),
		text("r.outcome IN ('failed', 'snooze')", "TRUE"))
}

func removedFirst() mistake {
	return in("task.consume", before("t.worker.invoke",
		"if _, err := e.transactor.store.Claims.Remove(ctx, e.transactor.db, new(consumerTx).session, t.row.ID); err != nil { return err }"))
}

// transactionMutants break what a transaction promises: that of a consumer, and that of a caller.
func transactionMutants() []mutant {
	return []mutant{
		{"tx: the fence does not check the claim", in("postgres.fenceRowsSQL",
			text("EXISTS (SELECT 1 FROM {claims} c WHERE c.id = w.claim AND c.owner = ? AND m.id = ANY(c.message_ids))", "? <> ''")),
			inStore("TestStore/postgres/transaction"), `fence, (release|another owner|a foreign claim)`},
		{"tx: a failed message leaves its writes to its group", in("ClaimStore.Undo", text("ROLLBACK TO SAVEPOINT", "SAVEPOINT")),
			inOutbox("TestAFailureInAGroupChargesOneMessage"), `message 7: got effects in attempts \[`},
		{"tx: a group succeeds although its commit failed", in("group.settle", replace("g.oneByOne(s.done)", "answer(s.done, nil)")),
			inOutbox("TestOnlyTheMemberThatBreaksItsGroupIsCharged"), `message \d+: got effects in attempts \[\]`},
		{"tx: a layer may run its consumer after the message is settled", in("executor.runChain", drop("t.innermost.Lock")),
			inOutbox("TestLayerThatCallsWhatIsOver"), `the layer below, too late: got error`},
		{"tx: a partly failed batch is committed",
			in("group.tryBatch", within("case partlyFailed: …", replace("own.rollback()", "_ = own.tx.Commit()"))),
			inOutbox("TestTransactionalBatches/sqlite"), `want one in attempt`},
		{"tx: a failed commit counts for every message of the batch",
			in("group.tryBatch", replace("repeat(held, err)", "answer(held, err); held = nil")),
			inOutbox("TestATransactionalBatchThatCannotCommit"), `want those of all but one`},
		{"tx: no savepoint in a caller's transaction", in("txn.Whole", always("!ok")), inTxn("TestAFailedCallInACallersTransactionIsRolledBack"),
			`the tables after a call that failed|go on after the error`},
		{"tx: a message is removed under the consumer's role", in("Names.AsBegun", always("session.Role")),
			inOutbox("TestRemovalIgnoresTheSearchPathOfTheHandler"), `poisoned: got|messages of the other schema`},
		{"produce: what a layer sends in parts is not atomic", in("Producer.deliverIn", always("len(p.config.Middleware) == 0")),
			inOutbox("TestPartsSentByALayerAreAllOrNone/sqlite"), `want the layer's error and none`},
		{"produce: a replaced message keeps its row id", in("postgres.replaceSQL", text("id = DEFAULT, message_id", "message_id")),
			inOutbox("TestNoReplacementIsLost/postgres"), `want the last`},
		{"produce: a message replaced while it runs is postponed", in("sqlite.supersedeSQL", text(") AS held", ") AND FALSE AS held")),
			inOutbox("TestWhatRunsIsNotPostponed"), `one after the other`},
		{"produce: insert ids under former names are not seen", in("RowOf", drop("row.FormerConsumers = config.Aliases")),
			inOutbox("TestARenamedConsumersInsertIDIsPendingOnce/postgres"), `produce what is pending under the former name: got`},
	}
}
