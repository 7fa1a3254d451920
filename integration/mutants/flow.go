package main

// flowMutants break what decides when, how often and with whom messages run.
func flowMutants() []mutant {
	on := func(tests string) suite { return suite{pkg: inOutbox, tests: tests} }
	return []mutant{
		{
			name: "what comes too late runs", file: "outbox/deadline.go", suite: on("^TestARetryMayBeTooLate$"), says: `want one, before the deadline|gave up waiting`,
			changes: []change{{"if !now.After(by) {", "if true {"}},
		},
		{
			name: "to requeue keeps the deadline", file: "internal/store/dialect/returning.go", suite: on("^TestWhatComesTooLateIsNotRun$/^sqlite$"), says: `want the deadline lifted`,
			changes: []change{{"`+RequeuedHeaders+`", "p.headers"}},
		},
		{
			name: "who has failed comes with others again", file: "outbox/task.go", suite: on("^TestOneErrorIsEverybodys$/^sqlite$"), says: `want all at once, then one by one`,
			changes: []change{{"return !failed(t) && !slices", "return failed(t) || !failed(t) || !slices"}},
		},
		{
			name: "a batch that failed in part is committed", file: "outbox/batch.go", suite: on("^TestTransactionalBatches$/^sqlite$"), says: `want one in attempt`,
			changes: []change{{"case partlyFailed:\n\t\town.rollback()", "case partlyFailed:\n\t\t_ = own.tx.Commit()"}},
		},
		{
			name: "one of a batch answers for all when the commit fails", file: "outbox/batch.go", suite: on("^TestATransactionalBatchThatCannotCommit$"), says: `want those of all but one`,
			changes: []change{{"if err := own.commit(tasksOf(held)); err != nil { // one of them may be to blame\n\t\trepeat(held, err)\n\t\tothers = append(held, others...)", "if err := own.commit(tasksOf(held)); err != nil {\n\t\tanswer(held, err)"}},
		},
		{
			name: "a closed gate counts attempts", file: "outbox/gate.go", suite: on("^TestAClosedGateWritesNothing$/^sqlite$"), says: `want 200|want it untouched`,
			changes: []change{{"closed && (outcome == bus.Unclassified || outcome == bus.Retried)", "closed && outcome == bus.Outcome(99)"}},
		},
		{
			name: "what replaces a message keeps its id", file: "internal/store/postgres/insert.go", suite: on("^TestNoReplacementIsLost$/^postgres$"), says: `want the last`,
			changes: []change{{"SET id = DEFAULT, message_id", "SET message_id"}},
		},
		{
			name: "one that is stopped takes its batch along", file: "outbox/stop.go", suite: on("^TestStoppingOneOfABatch$/^sqlite$"), says: `without an attempt counted`,
			changes: []change{{"if errs[i] != nil && !m.task.stopped.Load()", "if errs[i] == nil && !m.task.stopped.Load()"}},
		},
		{
			name: "what is stopped counts as failed", file: "outbox/stop.go", suite: on("^TestARunIsStoppedFromOutside$/^sqlite$"), says: `want "cancelled"`,
			changes: []change{{"return bus.Discard(fmt.Errorf(\"%w: %w\", bus.ErrCancelled, err))", "return fmt.Errorf(\"%w: %w\", bus.ErrCancelled, err)"}},
		},
		{
			name: "a key is not remembered", file: "outbox/task.go", suite: on("^TestAKeyStaysTakenForAPeriod$/^sqlite$"), says: `rows written`,
			changes: []change{{"if t.message.UniqueFor <= 0 ||", "if true ||"}},
		},
	}
}

// priorityMutants break what comes first.
func priorityMutants() []mutant {
	on := func(tests string) suite { return suite{pkg: inOutbox, tests: tests} }
	return []mutant{
		{
			name: "what is urgent goes before everything", file: "internal/store/dialect/pick.go", suite: on("^TestHigherPrioritiesComeFirst$/^sqlite$"), says: `want \[urgent x 10 old x 5`,
			changes: []change{{"* r.Ageing)", "* time.Hour)"}},
		},
		{
			name: "a priority counts among what is found anyway", file: "internal/store/postgres/claim.go", suite: on("^TestHigherPrioritiesComeFirst$/^postgres$"), says: `want \[urgent x 10 old x 5`,
			changes: []change{{"picks = append(picks, prior...)", "_ = prior"}},
		},
	}
}

// breakerMutants break what stops a consumer everywhere.
func breakerMutants() []mutant {
	on := func(tests string) suite { return suite{pkg: inOutbox, tests: tests} }
	return []mutant{
		{
			name: "a breaker is one process's", file: "outbox/breaker.go", suite: on("^TestABreakerOpensInAllProcesses$/^sqlite$"), says: `gave up waiting: it is open everywhere`,
			changes: []change{{"case row.Opened != b.probing:", "case false:"}},
		},
		{
			name: "all processes probe", file: "internal/store/breakers.go", suite: suite{pkg: inStore, tests: "^TestStore$/^sqlite$/^breakers$"}, says: `won:`,
			changes: []change{{"return n == 1, err", "return n >= 0, err"}},
		},
		{
			name: "what is done elsewhere does not count", file: "outbox/breaker.go", suite: on("^TestABreakerStaysClosedWhileMostIsDone$/^sqlite$"), says: `gave up waiting|want none`,
			changes: []change{{"case outcome == bus.Done:\n\t\tb.done++", "case outcome == bus.Done:"}},
		},
	}
}

// boundMutants break what holds over all processes.
func boundMutants() []mutant {
	on := func(tests string) suite { return suite{pkg: inOutbox, tests: tests} }
	return []mutant{
		{
			name: "a limit counts in one process", file: "outbox/limit.go", suite: on("^TestALimitHoldsOverAllProcesses$/^sqlite$"), says: `want 3 in 120`,
			changes: []change{{"for _, until := range l.slots {\n\t\tif until.Sub(now) > lease/6 {\n\t\t\tn++\n\t\t}\n\t}\n\treturn n", "return l.limit"}},
		},
		{
			name: "what has lost its slot runs on", file: "outbox/slot_keeper.go", suite: on("^TestWhatRunsWithoutASlotIsCancelled$/^sqlite$"), says: `gave up waiting: it is cancelled`,
			changes: []change{{"if l.running > l.valid(now, d.config.LeaseDuration) {", "if false {"}},
		},
		{
			name: "slots are forgotten of which nobody knows", file: "outbox/slot_keeper.go", suite: on("^TestSlotsAreGivenBackByAStop$/^sqlite$"), says: `slots that somebody has at the end`,
			changes: []change{{"if l.unsure {", "if l.unsure && l.limit == 0 {"}},
		},
		{
			name: "slots are kept that nobody needs", file: "outbox/limit.go", suite: on("^TestSlotsOfTheDeadAreFreeAgain$/^sqlite$"), says: `gave up waiting: the slot is given back`,
			changes: []change{{"case free > 0 && !wanted:", "case false:"}},
		},
		{
			name: "a slot is taken from who has it", file: "internal/store/slots.go", suite: on("^TestALimitHoldsOverAllProcesses$/^postgres$"), says: `want 3 in 120`,
			changes: []change{{"AND leased_until <= {now} ORDER BY n", "ORDER BY n"}},
		},
		{
			name: "the rate is not spent", file: "internal/store/dialect/rate.go", suite: on("^TestARateHoldsOverAllProcesses$/^sqlite$"), says: `or more`,
			changes: []change{{"if r.Rate == nil || len(c.Messages) == 0 {", "if true {"}},
		},
		{
			name: "the rate is not locked", file: "internal/store/dialect/rate.go", suite: on("^TestARateHoldsOverAllProcesses$/^postgres$"), says: `or more`,
			changes: []change{{"RateUsed+` {lock}`", "RateUsed"}},
		},
		{
			name: "nothing probes when only suspects wait", file: "outbox/startable.go", suite: on("^TestSomethingAlwaysProbes$/^suspects"), says: `want four probes`,
			changes: []change{{"len(c.queue) > 0 || c.suspects != 0", "len(c.queue) > 0"}},
		},
		{
			name: "what replaces a running message is postponed with it", file: "internal/store/sqlite/insert.go", suite: on("^TestWhatRunsIsNotPostponed$"), says: `one after the other`,
			changes: []change{{"id IN (` + heldSQL + `) AS held", "id IN (` + heldSQL + `) AND FALSE AS held"}},
		},
	}
}

// batchMutants break what messages of one batch owe each other.
func batchMutants() []mutant {
	on := func(tests string) suite { return suite{pkg: inOutbox, tests: tests} }
	const turns, batch, worker = "outbox/turns.go", "outbox/batch.go", "outbox/worker.go"
	return []mutant{
		{
			name: "the order is lost when the first of a batch has no key", file: turns, suite: on("^TestOneWithoutAKeyLeavesTheOthersTheirOrder$"), says: `got the last of each key`,
			changes: []change{{"if !slices.ContainsFunc(tasks, inOrder) {", "if !inOrder(tasks[0]) {"}},
		},
		{
			name: "the order of a transaction is lost when the first of a batch has no key", file: turns, suite: on("^TestOneWithoutAKeyLeavesTheOthersTheirOrderInATransaction$"), says: `out of order`,
			changes: []change{{"if !slices.ContainsFunc(tasks, inOrder) {", "if !inOrder(tasks[0]) {"}},
		},
		{
			name: "what comes behind an unreadable payload runs", file: "bus/batch.go", suite: on("^TestWhatComesBehindAnUnreadablePayloadWaits$/^sqlite$"), says: `want a1 and not a3`,
			changes: []change{{"if ordered && slices.Contains(stuck, m.OrderKey) {", "if false && ordered {"}},
		},
		{
			name: "a stopped message behind a failed one is given back", file: turns, suite: on("^TestToStopTheSecondOfAKeyTakesItOutOfItsBatch$/^sqlite$"), says: `want a1 and a3 once more|Stop: got`,
			changes: []change{{"if t.stopped.Load() {\n\t\treturn errStopped", "if false {\n\t\treturn errStopped"}},
		},
		{
			name: "a stopped message behind others in a run begins", file: worker, suite: on("^TestToStopWhatWaitsLeavesTheRunBeforeItAlone$/^sqlite$"), says: `Stop: got "too late"`,
			changes: []change{{"case t.stopped.Load(): // while", "case false: // while"}},
		},
		{
			name: "a stop ends a call that its message is not in", file: "outbox/stoppable.go", suite: on("^TestToStopWhatIsNotInTheCallLeavesTheCallAlone$/^sqlite$"), says: `want the others done in their first`,
			changes: []change{{"return s.of == t && len(s.with) == 0 ||", "return true ||"}},
		},
		{
			name: "a stop ends the run that its message waits behind", file: "outbox/stoppable.go", suite: on("^TestToStopWhatWaitsLeavesTheRunBeforeItAlone$/^sqlite$"), says: `want a1 done in its second`,
			changes: []change{{"return s.of == t && len(s.with) == 0 ||", "return len(s.with) == 0 ||"}},
		},
		{
			name: "a lost lease costs the others of a batch an attempt", file: batch, suite: on("^TestALeaseLostForOneOfABatchCostsTheOthersNothing$"), says: `since the lease of another was lost`,
			changes: []change{{"errs[i] = withoutChance(ctx, errs[i])", "_ = withoutChance(ctx, errs[i])"}},
		},
		{
			name: "a lost lease counts against the breaker", file: worker, suite: on("^TestALostLeaseIsNoFailureToABreaker$/^sqlite$"), says: `the breaker is open, of runs that lost`,
			changes: []change{{"\tif !panicked {\n\t\terr = withoutChance(ctx, err)\n\t}\n", ""}, {"\t\tt.consumer.breaker.count(err, t.probe)\n\t}\n", "\t\tt.consumer.breaker.count(err, t.probe)\n\t}\n\tif !panicked {\n\t\terr = withoutChance(ctx, err)\n\t}\n"}},
		},
	}
}

// batchChainMutants break how the chains of a batch begin, and what is told to them.
func batchChainMutants() []mutant {
	on := func(tests string) suite { return suite{pkg: inOutbox, tests: tests} }
	return []mutant{
		{
			name: "all chains of a key begin at once", file: "outbox/group.go", suite: on("^TestALayerThatLetsOneThroughAtATimeHoldsUpNoBatch$/^in_order$"), says: `want some 10 ms for each`,
			changes: []change{{"if g.inside++; g.turns.before(t) == nil {", "if g.inside++; true {"}},
		},
		{
			name: "a layer hears of what is late behind one that is not done", file: "outbox/worker.go", suite: on("^TestWhatIsLateIsReportedOnceItIsPoisoned$"), says: `poisoned behind it, want none yet`,
			changes: []change{{"\t\treturn t.inTurn(err)\n", "\t\treturn err\n"}},
		},
		{
			name: "a batch waits for keys at their bound", file: "outbox/dispatcher.go", suite: on("^TestABatchDoesNotWaitForKeysAtTheirBound$"), says: `want no batch but the last to wait`,
			changes: []change{{"if c.exhausted(now) {", "if c.exhausted(now) && false {"}},
		},
		{
			name: "a batch that lost a conflict does not know", file: "outbox/batch.go", suite: on("^TestABatchKnowsThatItLostAConflict$"), says: `does not know that the first has lost`,
			changes: []change{{"if f, ok := err.(*fault); ok && f.of == conflict {", "if f, ok := err.(*fault); ok && f.of == conflict && false {"}},
		},
		{
			name: "no slot is asked for what has crashed", file: "outbox/limit.go", suite: on("^TestASlotForWhatHasCrashedIsAskedForAtOnce$"), says: `want one, in a slot`,
			changes: []change{{"case wanted && free", "case wanted && l.consumers[0].suspects == 0 && free"}},
		},
	}
}
