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
		{"settle: a release counts as an attempt",
			in("postgres.applySQL", text("CASE r.outcome WHEN 'failed'", "CASE WHEN r.outcome IN ('failed', 'release')"),
				text("r.outcome IN ('failed', 'snooze')", "TRUE")),
			inStore("TestStore/postgres/settle"), `settle\.go:\d+: messages?:`},
		{"settle: a claim that still has messages in flight is finished", in("ledger.takeLocked",
			replace("entry.open == 0 && !entry.partial && …", "!entry.partial && !b.freeOnly && !slices.ContainsFunc(results, needsSettle)")),
			inOutbox("TestGracefulStopWithAHundredInFlight|TestABlockedHandlerDoesNotDelayOthers"), `removed: got \d+, want the \d+ that finished`},
		{"settle: removed before the consumer has run",
			in("task.consume", before("t.worker.invoke",
				"if _, err := e.transactor.store.Claims.Remove(ctx, e.transactor.db, new(consumerTx).session, t.row.ID); err != nil { return err }")),
			inOutbox("TestGracefulStopWithAHundredInFlight"), `removed: got \d+, want the \d+ that finished`},
		{"settle: waits for locked messages", in("postgres.settleFreeSQL", text("FOR UPDATE SKIP LOCKED), busy", "FOR UPDATE), busy")),
			inStore("TestPostgresSettlesUnlockedMessagesAtOnce"), `beside a locked message: got`},
		{"settle: a result that cannot be stored holds up others", in("settler.persist", never("st.outage.Failed")),
			inOutbox("TestARefusedSettleDoesNotDelayOthers/a_timeout"), `gave up waiting: the others are settled`},
		{"keep: a settle that is sent again keeps a message twice",
			in("postgres.keepSQL", text("JOIN res r ON r.cid = k.cid AND r.mid = k.id", "")),
			inStore("TestStore/postgres/keep"), `keep\.go:\d+: (settle|consumed)`},
		{"keep: a result that does not count keeps its message", in("Lists.Settle", replace("KeptOf(held)", "KeptOf(results)")),
			inStore("TestStore/sqlite/keep"), `keep\.go:\d+: (settle|consumed)`},
		{"keep: a claim that is finished as a whole keeps nothing", in("needsSettle", replace("r.Kept != nil", "false")),
			inOutbox("TestAConsumerKeepsWhatItConsumed"), `plain: got \d+ kept, \d+ of them distinct, want 30`},
		{"keep: payloads without KeepPayload", in("task.kept", always("KeepPayload")),
			inOutbox("TestAConsumerKeepsWhatItConsumed"), `want it done, without a payload`},
		{"keep: forgotten before its time", in("ConsumedStore.Forget", replace(`"expires_at < " + s.names.Now(ctx)`, `"expires_at IS NOT NULL"`)),
			inOutbox("TestConsumedMessagesAreForgotten"), `forgotten after|gave up`},
		{"settle: poisoned under an id that is taken",
			in("PoisonedID", text("CASE WHEN EXISTS (SELECT 1 FROM {poisoned} p WHERE p.id = {id})", "CASE WHEN FALSE")),
			inStore("TestPoisoningFindsAFreeID/sqlite"), `gave up waiting: poisoned again`},
		{"lease: not renewed", in("renewer.renew", replace("rn.store.Claims.Extend(…)", "[]int64(nil), error(nil)")),
			inOutbox("TestConsumersThatUseThePoolUpKeepTheirLeases|TestATrickleDoesNotPutOffTheKeeper"),
			`consumers that lost their lease: got|got 1 claims recovered`},
		{"lease: each processor keeps a connection", in("renewalConnOf", drop("renewalConns.pools[pool] = c")),
			tests("internal/engine", "TestProcessorsShareTheConnectionForRenewals"), `during the second one's: got 2 connections`},
		{"lease: a consumer starts after it", in("call.held", returns("true")), tests("internal/engine", "TestNoHandlerBeginsAfterItsLease"),
			`one, lease over true: got 1 runs`},
	}
}

// transactionMutants break what a transaction promises: that of a consumer, and that of a caller.
func transactionMutants() []mutant {
	return []mutant{
		{"tx: the fence does not check the claim", in("postgres.fenceRowsSQL",
			text("EXISTS (SELECT 1 FROM {claims} c WHERE c.id = w.claim AND c.owner = ? AND m.id = ANY(c.message_ids))", "? <> ''")),
			inStore("TestStore/postgres/transaction"), `fence, (release|another owner|a foreign claim)`},
		{"tx: a message is removed in another transaction",
			both(in("consumerTx.commit", replace("t.transactor.store.Claims.Remove(…)", "len(ids), statement.Err()")),
				in("transactor.tryInTx", before("t.committed = true", "if n := len(held); n > 0 { return nil }"))),
			bar("3-commits"), `I6: effects other than one`},
		{"tx: a failed message leaves its writes to its group", in("ClaimStore.Undo", text("ROLLBACK TO SAVEPOINT", "SAVEPOINT")),
			inOutbox("TestAFailureInAGroupChargesOneMessage"), `message 7: got effects in attempts \[`},
		{"tx: a group succeeds although its commit failed", in("group.settle", replace("g.oneByOne(s.done)", "answer(s.done, nil)")),
			inOutbox("TestOnlyTheMemberThatBreaksItsGroupIsCharged"), `message \d+: got effects in attempts \[\]`},
		{"tx: a partly failed batch is committed",
			in("group.tryBatch", within("case partlyFailed: …", replace("own.rollback()", "_ = own.tx.Commit()"))),
			inOutbox("TestTransactionalBatches/sqlite"), `want one in attempt`},
		{"tx: no savepoint in a caller's transaction", in("txn.Whole", always("!ok")),
			tests("integration/txn", "TestAFailedCallInACallersTransactionIsRolledBack"),
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
