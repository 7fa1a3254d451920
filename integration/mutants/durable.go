//go:build unix

package main

// durableMutants break what keeps a step from running again once its result is stored.
func durableMutants() []mutant {
	return []mutant{
		{"steps: not read", in("stepStorage.Load", replace("s.transactor.store.Steps.Read(…)", `"", true, error(nil)`)),
			inOutbox("TestStepsGoOnWhereTheyStopped"), `got calls of the steps' functions`},
		{"steps: an outage counts as an attempt", in("engine.ofStorage", never("class.Outage()")),
			inOutbox("TestAnOutageDuringAStepDoesNotCount"), `poisoned messages: got 1, want none`},
		{"steps: lost by a requeue",
			in("dialect.Returning.RequeueAs", text("p.created_at, {now}, p.steps,", "p.created_at, {now}, NULL,")),
			inOutbox("TestStepsStayWithAPoisonedMessage"), `got calls of the steps' functions`},
		{"steps: lost by a failure for good",
			in("postgres.applySQL", text("{now}, reason, group_key, steps,", "{now}, reason, group_key, NULL,")),
			inStore("TestStore/postgres/steps"), `after the requeue`},
		{"steps: called after a lost lease", in("Log.begin", never("l.lost")),
			inOutbox("TestALostLeaseStoresNoStep"), `called after the lease was lost`},
		{"steps: of a claim that was lost", in("postgres.addStepSQL", text("AND m.crashes = ? AND EXISTS", "AND m.crashes >= ? - 9 AND EXISTS")),
			inStore("TestStore/postgres/steps"), `a crash:`},
		{"steps: stored after the consumer's end", in("Log.end", replace("context.WithoutCancel(ctx)", "ctx")),
			inOutbox("TestAStepIsStoredPastTheTimeout"), `got calls of the step's function 2`},
	}
}

// groupMutants break the end of groups.
func groupMutants() []mutant {
	groups := func(database, names string) suite { return inStore("TestStore/" + database + "/groups/" + names) }
	return []mutant{
		{"groups: a member that is being produced is overlooked", in("OutboxStore.share", text("{lock shared}", "")),
			groups("postgres", "a_member_that*"), `fired before the member is committed`},
		{"groups: an end with pending members", in("doneSQL", text("m.group_key = g.name", "m.group_key = g.name AND 1 = 0")),
			groups("sqlite", "a_group_is_done*"), `with members`},
		{"groups: an end in spite of a poisoned member", in("doneSQL", text("g.poisoned IS NOT NULL OR", "1 = 1 OR")),
			groups("sqlite", "a_poisoned_member_keeps*"), `go:\d+: poisoned`},
		{"groups: a poisoned member does not count at the end", in("GroupStore.Fire", never("found[0].Hurt")),
			groups("sqlite", "a_poisoned_member_ends*"), `pending`},
		{"groups: an end by two at once", in("GroupStore.Fire", text("{lock free}", "")),
			groups("postgres", "a_group_that_is_ending*"), `want it to leave the group alone`},
		{"groups: a requeued message has left its group",
			in("Returning.RequeueAs", text("{now}, p.steps, p.order_key, p.lane, p.rank, p.group_key",
				"{now}, p.steps, p.order_key, p.lane, p.rank, NULL")),
			groups("sqlite", "the_group_stays*"), `go:\d+: .*requeued`},
		{"groups: what a newer release adds is dropped", in("UnmarshalKnown", drop("strict.DisallowUnknownFields()")),
			groups("sqlite", "a_group_of_a_newer*"), `fire what has an unknown field`},
	}
}
