//go:build unix

package main

// durableMutants break what keeps a step from running again once its result is stored.
func durableMutants() []mutant {
	return []mutant{
		{"steps: not read", in("stepStorage.Load", replace("s.transactor.store.Claims.Steps(…)", `"", error(nil)`)),
			inOutbox("TestStepsGoOnWhereTheyStopped"), `got calls of the steps' functions`},
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
