//go:build unix

package main

func onPostgres(names string) suite { return inOps(names + "/postgres") }

// permissionMutants let people do, see or search what they may not.
func permissionMutants() []mutant {
	return []mutant{
		{"ops: an operator discards", in("ops.needs", replace("Requeue", "Requeue, Discard")), inOps("TestRoles"),
			`Discard as operator: forbidden is false`},
		{"ops: a principal without a name has its role", in("Principal.may", drop("p.Role = None")), inOps("TestEachMethodChecksTheRole"),
			`no name: .*: got error`},
		{"ops: a plan needs no permission", in("ops.Operations.preview", never("s.may(a, target.consumer())")),
			inOps("TestEachMethodChecksTheRole"),
			`Plan: got error`},
		{"ops: a change by ids does not ask Allow", in("ops.access.allowed", never("s.who.Allow != nil")), onPostgres("TestAllowIsAskedOfEach"),
			`(requeue|cancel): got error`},
		{"ops: ids that Allow was not asked about are changed", in("ops.access.allowed", before("if err != nil {…}", "ids = c.Target.IDs")),
			onPostgres("TestIDsThatDoNotExistYetAreNoWayAroundAllow"), `want the first changed`},
		{"ops: Allow is asked of former names", in("ops.access.may", replace("consumer = c.Name()", "_ = c.Name()")),
			onPostgres("TestAFormerNameIsNoWayAroundAllow"), `pause billing: got <nil>, want it forbidden`},
		{"ops: contents are shown to viewers", in("ops.access.shown", without("s.may")), onPostgres("TestContents"), `a viewer sees the secret`},
		{"ops: reasons are not redacted", in("operator.Poisoned.reason", returns("m.Reason")), onPostgres("TestContents"), `sees the secret`},
		{"audit: asked after the change", in("ops.access.changeAfter", before("s.noted", "_, _ = fn(ctx, db, ids)")),
			onPostgres("TestChangesAreAudited"),
			`something was changed all the same`},
		{"audit: decisions are not recorded", in("ops.Operations.decideIn", never("s.noted")), onPostgres("TestDecisionsAreInTheAudit"),
			`want the audit's|the audit was told`},
	}
}

// planMutants change more than was planned, or start a plan that must not be.
func planMutants() []mutant {
	return []mutant{
		{"plan: includes messages poisoned meanwhile", in("ops.step.inChunk", replace("poison.Filter{IDs: ids}", "*s.target.Poisoned")),
			onPostgres("TestAPlanOfPoisonedMessagesChangesWhatItHasSeen"), `2 planned, 3 changed`},
		{"plan: includes events that are parked later", in("projection.Runner.RetryParked", never("len(positions) > 0")),
			onPostgres("TestRetryOfParkedEventsCoversOnlyThosePlanned"), `planned 1, changed 2`},
		{"plan: includes later matches", in("ops.step.changePending", before("d.store.Pending.PendingOf",
			"ids, _, _, _ = d.store.Pending.Matching(ctx, tx, pendingRows(*s.target.Pending), 0, s.row.UpToID, s.limit)")),
			onPostgres("TestAPlanChangesOnlyWhatItListed"), `commits late: 2 planned, 3 changed`},
		{"plan: touches consumers that Allow was not asked for", in("ops.step.inChunk", omit("Consumers")),
			onPostgres("TestAnOperationLeavesConsumersOutsideAllowAlone"), `discard: 4 planned, 4 changed`},
		{"plan: started twice", in("ops.Operations.start", never("o.underWay()"), replace("o.State != Planned", "o.State == Done")),
			onPostgres("TestOnlyTheCreatorStartsAPlan"), `it was started [2-8] times`},
	}
}

// stepMutants have a runner work twice, too early, too long or on what was stopped.
func stepMutants() []mutant {
	operations := inStore("TestStore/postgres/operations")
	return []mutant{
		{"operation: starts before its undo window is over", in("OperationFilter.terms", text("starts_at <= {now} AND", "")), operations,
			`not started:|too early:`},
		{"operation: leased twice", in("OperationFilter.terms", text("OR leased_until < {now}", "OR leased_until <> {now}")), operations,
			`leased by:|renewed:`},
		{"operation: a step is repeated after a crash", in("work.part", before("w.service.store.Operations.Change", "change.Changed = 0")),
			onPostgres("TestRunnersEndAtEachStatement/stopped"), `got .* pending and .* counted`},
		{"operation: a stop does not wait for the step", in("OperationStore.Lock", text("{lock}", "")), onPostgres("TestStopWaitsForTheStep"),
			`the stop has not waited|after the stop: got`},
		{"operation: goes on after a stop", in("work.workOn", returns("OperationState(row.State) != Done")), onPostgres("TestStop"),
			`are left later`},
		{"operation: failed canaries are ignored", in("work.judge", never("badPart")), onPostgres("TestCanaries"),
			`operation is done, want paused|want 5 changed, a note`},
		{"operation: a Reset that hangs is waited for",
			in("projection.reset", replace("resetTime", "100 * resetTime")),
			tests("eventlog/projection", "TestAResetThatHangsIsGivenUp"), `got no end`},
	}
}

// adminMutants have operators change or show what they did not ask for, or miss what is wrong.
func adminMutants() []mutant {
	command := func(names string) suite { return tests("cmd/asyncmonolith", names) }
	return []mutant{
		{"admin: locks claimed messages", in("postgres.lockPendingSQL", text("AND id NOT IN (", "AND -id NOT IN (")),
			inOutbox("TestAdminLocksNoClaimedMessage"), `gave up waiting: settled beside the transaction|put aside: got 1`},
		{"poison: an empty list of ids selects all", in("poison.Filter.check", without("n == 0")),
			tests("poison", "TestBadInputIsRefusedBeforeAnySQL"), `the database was used`},
		{"check: a part that was not examined is fine", in("ops.attention", replace("o.Unseen", "o.Unseen[:0]")),
			inOps("TestCheckReportsPartsItCouldNotRead"), `overview: got \[\]`},
		{"command: changes without --yes", in("confirmation.unconfirmed", always("f.yes")), command("TestChangesAreAskedFor"),
			`want exit code 4`},
		{"command: contents are shown unasked", in("contentFlag.config", always("f.shown")), command("TestContentsAreAskedFor"),
			`want no content`},
	}
}
