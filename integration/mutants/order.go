//go:build unix

package main

const atOnce, outOfOrder = "claimers_at_once*", `order: got \d+ violations`

// lanes are tests of messages with keys that run in order.
func lanes(database, names string) suite { return inStore("TestStore/" + database + "/lanes/" + names) }

// orderMutants break the order of messages with keys.
func orderMutants() []mutant {
	return []mutant{
		{"order: claims of a consumer run side by side", in("laneClaim.lockGates", text("{lock}", "")), lanes("postgres", atOnce), outOfOrder},
		{"order: keys in a claim are claimed", in("freeLane", text("l.lane NOT IN ({busy lanes})", "(1 = 1 OR l.lane NOT IN ({busy lanes}))")),
			lanes("sqlite", atOnce), outOfOrder},
		{"order: parked keys are claimed", in("freeLane", text("AND p.parks)", "AND p.parks AND 1 = 0)")), lanes("sqlite", atOnce), outOfOrder},
		{"order: a key is free once its first message is settled", in("postgres.applySQL", text("lanes = k.lanes", "lanes = NULL")),
			lanes("postgres", atOnce), outOfOrder},
		{"order: ranks are handed out in blocks", file("postgres/migrations/0001_initial.sql", "CACHE 1 OWNED", "CACHE 20 OWNED"),
			lanes("postgres", "places_are_those*"), `order:`},
		{"order: a requeued message comes last",
			in("Returning.RequeueAs", text("{now}, p.steps, p.order_key, p.lane, p.rank", "{now}, p.steps, p.order_key, p.lane, p.rank + 100000")),
			lanes("sqlite", atOnce), outOfOrder},
		{"order: a crash counts for all of a key", in("Lists.begun", without("ordered && seen[c.Lanes[i]]")),
			lanes("sqlite", "crashed_messages*"), `recovered:`},
		{"order: a message poisoned by crashes does not park its key",
			in("postgres.recoverSQL", text("(SELECT g.parks FROM {gates} g WHERE g.consumer_type = dying.consumer_type)", "FALSE")),
			lanes("postgres", "crashed_messages*"), `which parks it`},
		{"order: messages of a key start at once", in("queue.push", never("head != nil")), inOutbox("TestMessagesOfAKeyRunInOrder/sqlite"),
			`runs out of order`},
		{"order: a key goes on after a failure", in("worker.runInOrder", without("m.passed")), inOutbox("TestMessagesOfAKeyRunInOrder/sqlite"),
			`runs out of order`},
		{"order: that of the insert ids", in("ranked", never("len(rows) > 1")), inOutbox("TestOrderIsThatOfTheCall/postgres"),
			`want \[1 2 5 6 7 8 10 11\]`},
		{"order: former and present names run side by side", in("Names.Free", drop("condition, values = condition+renamed, …")),
			inOutbox("TestOrderHoldsAcrossARename/sqlite"), `runs out of order`},
		{"batch: order is lost if the first message has no key",
			in("newKeyOrder", replace("!slices.ContainsFunc(tasks, inOrder)", "!inOrder(tasks[0])")),
			inOutbox("TestOneWithoutAKeyLeavesTheOthersTheirOrder"), `got the last of each key`},
		{"batch: a group goes on past a failed message of the key", in("keyOrder.mayRun", always("o.done(before)")),
			inOutbox("TestTransactionalMessagesOfAKeyRunInOrder/in_groups/sqlite"), `out of order`},
	}
}

// keyMutants break how many messages of a key may run at once, or in a time.
func keyMutants() []mutant {
	of := func(names string) suite { return inStore("TestStore/sqlite/per_key/" + names) }
	const tooMany = `bound: got \d+ violations|the most of a key`
	return []mutant{
		{"key: claimed messages do not count towards its bound", in("laneClaim.quotas", drop("all.of[lane.Lane] -= lane.Held")),
			of(atOnce), tooMany},
		{"key: a claimed message is claimed again", in("Source.For", text("AND m.id NOT IN ({held ids})", "")), of(atOnce),
			tooMany + `|are left after`},
		{"key: its rate is not spent", in("keyRates.spend", text("used_to = excluded.used_to", "used_to = {now}")),
			of("rates_of_keys*"), `ran after`},
		{"key: freed during a claim, it is not asked for again", in("lanes.claimed", never("l.frees")),
			tests("internal/engine", "TestWhatIsFreedDuringAClaimIsAskedForAgain"), `freed meanwhile: got it asked for again: false`},
		{"key: blocked ones hide those behind a look", in("laneRuns", text("w.more OR", "")),
			inStore("TestStore/sqlite/lanes/a_look_leaves*"), `found:`},
	}
}

// flowMutants break bounds that hold over all processes: limits, rates and breakers.
func flowMutants() []mutant {
	limit := func(database string) suite { return inOutbox("TestALimitHoldsOverAllProcesses/" + database) }
	return []mutant{
		{"limit: counted in one process", in("limiter.valid", returns("l.limit")), limit("sqlite"), `want 3 in 120`},
		{"limit: a slot is taken from its owner", in("FlowStore.freeSlots",
			text("owner <> '' AND leased_until > {now} AS ahead", "FALSE AS ahead"),
			text(" AND (owner = '' OR leased_until <= {now} OR {ahead})", "")),
			limit("postgres"), `want 3 in 120`},
		{"limit: a message without a slot runs on", in("limiters.withoutSlots", never("l.exceeded")),
			inOutbox("TestWhatRunsWithoutASlotIsCancelled/sqlite"), `gave up waiting: it is cancelled`},
		{"rate: not spent", in("RatedRequest.Spend", always("r.Rate == nil")), inOutbox("TestARateHoldsOverAllProcesses/sqlite"), `or more`},
		{
			"rate: not locked",
			in("RatedRequest.lock", text("{lock}", "")),
			inStore("TestStore/postgres/claim/eight_claimers_at_once_keep_to_a_rate"),
			`claimed at once: got`,
		},
		{"rate: forgotten while other work waits", in("capacity.nextStart", without("until.IsZero()")),
			inOutbox("TestARateIsUsedWhateverElseWaits"), `runs in 10 s, want about`},
		{"breaker: open in one process only", in("breaker.apply", drop("b.Hold(b.reasonLocked(), now.Add(flow.Never))")),
			inOutbox("TestABreakerOpensInAllProcesses/sqlite"), `gave up waiting: it is open everywhere`},
		{"breaker: a probe that was snoozed has failed", in("task.reportToCircuit", replace("t.probe && !counted", "counted && false")),
			inOutbox("TestAProbeThatShowsNothingIsFollowedByAnother"), `got 0 done and`},
		{"breaker: all processes probe", in("FlowStore.TakeProbe",
			text("opened = ? AND (open_until <= {now} OR open_until > ?)", "(opened = ? OR open_until IS NOT NULL OR open_until > ?)")),
			inStore("TestStore/sqlite/breakers"), `won:`},
	}
}
