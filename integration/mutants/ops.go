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
		{"ops: a plan of all consumers does not ask Allow", in("ops.Operations.preview", argument("s.mayEach", 1, "nil")),
			onPostgres("TestAllowIsAskedOfEach"), `plan: got error`},
		{"ops: a change by ids does not ask Allow", in("ops.access.allowed", never("s.who.Allow != nil")), onPostgres("TestAllowIsAskedOfEach"),
			`(requeue|cancel): got error`},
		{"ops: ids that Allow was not asked about are changed", in("ops.access.allowed", before("if err != nil {…}", "ids = c.Target.IDs")),
			onPostgres("TestIDsThatDoNotExistYetAreNoWayAroundAllow"), `want the first changed`},
		{"ops: Allow is asked of former names", in("ops.access.may", replace("consumer = c.Name()", "_ = c.Name()")),
			onPostgres("TestAFormerNameIsNoWayAroundAllow"), `pause billing: got <nil>, want it forbidden`},
		{"ops: contents are shown to viewers", in("ops.access.shown", without("s.may")), onPostgres("TestContents"), `a viewer sees the secret`},
		{"ops: reasons are not redacted", in("operator.Poisoned.reason", returns("m.Reason")), onPostgres("TestContents"), `sees the secret`},
		{"ops: an edit overwrites redacted content", in("operator.Poisoned.editable", without("string(c.Payload) != …")),
			onPostgres("TestNoEditOfWhatIsHidden"), `want ErrRedacted`},
		{"audit: asked after the change", in("ops.access.changeAfter", before("s.noted", "_, _ = fn(ctx, db, ids)")),
			onPostgres("TestChangesAreAudited"),
			`something was changed all the same`},
		{"audit: decisions are not recorded", in("ops.Operations.decideIn", never("s.noted")), onPostgres("TestDecisionsAreInTheAudit"),
			`want the audit's|the audit was told`},
	}
}

// planMutants change more than was planned, or start a plan that must not be.
func planMutants() []mutant {
	starts := onPostgres("TestOnlyTheCreatorStartsAPlan")
	return []mutant{
		{"plan: includes messages poisoned meanwhile", in("ops.step.inChunk", replace("poison.Filter{IDs: ids}", "*s.target.Poisoned")),
			onPostgres("TestAPlanOfPoisonedMessagesChangesWhatItHasSeen"), `2 planned, 3 changed`},
		{"plan: a large one includes later matches", in("ops.step.changePending", before("d.store.Pending.PendingOf",
			"ids, _, _, _ = d.store.Pending.Matching(ctx, tx, pendingRows(*s.target.Pending), s.row.AfterID, last, len(ids))")),
			onPostgres("TestALargePlanChangesOnlyWhatItListed"), `cancel: 10015 up to 20040 planned`},
		{"plan: a preview of the first matches is of all",
			in("ops.Service.pinOn", after("p.Messages, p.First, p.UpTo = …", "p.First = false")),
			onPostgres("TestThePreviewOfAHugePlan"), `first false`},
		{"plan: includes events that are parked later", in("projection.Runner.RetryParked", never("len(positions) > 0")),
			onPostgres("TestRetryOfParkedEventsCoversOnlyThosePlanned"), `planned 1, changed 2`},
		{"plan: includes later matches", in("ops.step.changePending", before("d.store.Pending.PendingOf",
			"ids, _, _, _ = d.store.Pending.Matching(ctx, tx, pendingRows(*s.target.Pending), 0, s.row.UpToID, s.limit)")),
			onPostgres("TestAPlanChangesOnlyWhatItListed"), `commits late: 2 planned, 3 changed`},
		{"plan: touches consumers that Allow was not asked for", in("ops.step.inChunk", omit("Consumers")),
			onPostgres("TestAnOperationLeavesConsumersOutsideAllowAlone"), `discard: 4 planned, 4 changed`},
		{"plan: started twice", startedTwice(), starts, `it was started [2-8] times`},
		{"plan: started after it expired", in("ops.Operations.start", never("planTime")), starts, `want ErrExpired`},
		{"plan: started beside an equal operation", in("Operation.sameAs", never("bytes.Equal")), onPostgres("TestTheSameIsStartedOnce"),
			`the same: got [2-6] operations`},
	}
}

func startedTwice() mistake {
	return in("ops.Operations.start", never("o.underWay()"), replace("o.State != Planned", "o.State == Done"))
}

// stepMutants have a runner work twice, too late, too fast or on what was stopped.
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
		{"operation: a stop waits longer for a Reset", in("work.apply", replace("stopTime", "stepTime")),
			onPostgres("TestARunnerEndsBesideAResetThatHangs"), `want it within 10 s`},
		{"operation: an abandoned Reset keeps its session", in("projection.reset", replace("interrupt()", "nil")),
			onPostgres("TestARunnerEndsBesideAResetThatHangs"), `its statement ends`},
		{"operation: another canary is not one", in("Operations.Resume", replace("int64(canary)", "int64(0)")), onPostgres("TestCanaries"),
			`operation is done, want paused`},
		{"operation: requeued messages that fail again are ignored", in("work.comesBack", always("badPart")),
			onPostgres("TestWhatComesBackStopsIt"), `operation is done, want paused`},
		{"operation: ignores its rate", in("pace.now", replace("int(p.left)", "int(p.left) + stepSize")), onPostgres("TestPace"),
			`60 at 30/s took`},
	}
}

// adminMutants have operators change what they have not seen, or miss what is wrong.
func adminMutants() []mutant {
	poison := func(names string) suite { return inPoison(names + "/postgres") }
	return []mutant{
		{"admin: locks claimed messages", in("postgres.lockPendingSQL", text("AND id NOT IN (", "AND -id NOT IN (")),
			inOutbox("TestAdminLocksNoClaimedMessage"), `gave up waiting: settled beside the transaction|put aside: got 1`},
		{"operation: exceeds what was seen", in("PendingStore.Matching", replace("upTo != 0", "upTo < 0")),
			inOutbox("TestMatchingMessagesAreListedInParts/postgres"), `matching: got`},
		{"poison: a batch exceeds what was seen",
			in("poisoned.Store.batch", replace("f.AfterID, f.UpToID = chunk.After, chunk.UpTo",
				"f.AfterID = chunk.After")), poison("TestRequeueInBatches"),
			`message 12: got requeued true`},
		{"poison: a batch needs no upper bound", in("poisoned.Store.batch", without("chunk.UpTo < 1")),
			tests("internal/poisoned", "TestBadInputIsRefusedBeforeAnySQL"), `the database was used`},
		{"poison: an empty list of ids selects all", in("poison.Filter.check", without("n == 0")),
			tests("poison", "TestBadInputIsRefusedBeforeAnySQL"), `the database was used`},
		{"poison: the empty fingerprint selects all", in("PoisonStore.poisonWhere", text("fingerprint IS NULL", "TRUE")),
			poison("TestDiscardChunkGoesByTheFilter"), `unclassified behind 5`},
		{"check: a part that was not examined is fine", in("ops.attention", replace("o.Unseen", "o.Unseen[:0]")),
			inOps("TestCheckReportsPartsItCouldNotRead"), `overview: got \[\]`},
		{"doctor: errors of schedules are shown", in("ops.sickness", text("Its error says why.", "Its error is %s."),
			replace("flow.Instant(row.NextFire)", "flow.Instant(row.NextFire), row.LastError")), inOps("TestDoctorLooksAtSchedules/sqlite"),
			`want no text of an error`},
	}
}

// commandMutants have the command do or show what it was not asked to.
func commandMutants() []mutant {
	command := func(names string) suite { return tests("cmd/asyncmonolith", names) }
	return []mutant{
		{
			"command: changes without --yes",
			in("confirmation.unconfirmed", always("f.yes")),
			command("TestChangesAreAskedFor"),
			`want exit code 4`,
		},
		{"command: changes without a reason", in("confirmation.confirmed", never("f.reason")), command("TestChangesAreAskedFor"),
			`--yes without a reason`},
		{
			"command: contents are shown unasked",
			in("contentFlag.config", always("f.shown")),
			command("TestContentsAreAskedFor"),
			`want no content`,
		},
	}
}
