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
			changes: []change{{"if err := own.commit(tasksOf(held)); err != nil { // one of them may be to blame\n\t\tothers = append(others, held...)", "if err := own.commit(tasksOf(held)); err != nil {\n\t\tanswer(held, err)"}},
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
		{
			name: "what has a priority moves the cursor", file: "internal/store/dialect/pick.go", suite: on("^TestHigherPrioritiesComeFirst$/^sqlite$"), says: `want \[urgent x 10 old x 5`,
			changes: []change{{"if c.Found[p.Want]++; p.Priority > 0 {", "if c.Found[p.Want]++; p.Priority > 9 {"}},
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
			name: "what has lost its slot runs on", file: "outbox/limit.go", suite: on("^TestWhatRunsWithoutASlotIsCancelled$/^sqlite$"), says: `gave up waiting: it is cancelled`,
			changes: []change{{"if l.running > 0 && d.freeSlotsLocked(l, now) < 0 {", "if false {"}},
		},
		{
			name: "slots are kept that nobody needs", file: "outbox/limit.go", suite: on("^TestSlotsOfTheDeadAreFreeAgain$/^sqlite$"), says: `gave up waiting: the slot is given back`,
			changes: []change{{"case free > 0 && !l.wants():", "case false:"}},
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
			name: "nothing probes when only suspects wait", file: "outbox/order.go", suite: on("^TestSomethingAlwaysProbes$/^suspects"), says: `want four probes`,
			changes: []change{{"closed && !probes {", "closed && (!probes || true) {"}},
		},
		{
			name: "what replaces a running message is postponed with it", file: "internal/store/sqlite/insert.go", suite: on("^TestWhatRunsIsNotPostponed$"), says: `one after the other`,
			changes: []change{{"id IN (` + heldSQL + `) AS held", "id IN (` + heldSQL + `) AND FALSE AS held"}},
		},
	}
}
