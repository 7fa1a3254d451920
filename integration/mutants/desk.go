//go:build unix

package main

// seatMutants have people see less than there is.
func seatMutants() []mutant {
	at := func(test string) suite { return suite{pkg: atDesk, tests: "^" + test + "$"} }
	return []mutant{
		{
			name: "check: what is old is all well", file: "ops/check.go", suite: at("TestCheckSaysWhatItCouldNotSee"), says: `overview: got \[\]`,
			changes: []change{{`range o.Unseen {`, `range o.Unseen[:0] {`}},
		},
		{
			name: "check: what could not be looked at is all well", file: "ops/overview.go", suite: at("TestCheckSaysWhatItCouldNotSee"), says: `projections: got \[\]`,
			changes: []change{{"found = append(found, unseen(err))", "found = nil"}},
		},
		{
			name: "what the server gives up is unknown", file: "internal/store/brief.go", suite: suite{pkg: inStore, tests: "^TestBriefReadsEnd$/^postgres$"}, says: `want ErrLate`,
			changes: []change{{"dberr.ClassOf(err) == dberr.Timeout && ", "dberr.ClassOf(err) == dberr.Conflict && "}},
		},
	}
}

// decisionMutants have people decide what they may not, or unknown to others, or look for what is hidden.
func decisionMutants() []mutant {
	at := func(test string) suite { return suite{pkg: atDesk, tests: "^" + test + "$"} }
	return []mutant{
		{
			name: "ops: who undoes is not known", file: "ops/decide.go", suite: onDesk("^TestDecisionsAreInTheAudit$"), says: `want the audit's|the audit was told`,
			changes: []change{{"Target: target, Rate: int(change.Rate)}, Done); err != nil {", "Target: target, Rate: int(change.Rate)}, Done); err != nil && id < 0 {"}},
		},
		{
			name: "ops: an old plan is started", file: "ops/decide.go", suite: onDesk("^TestWhoStarts$"), says: `want ErrExpired`,
			changes: []change{{"row.Now.Sub(o.CreatedAt) > planTime:", "row.Now.Sub(o.CreatedAt) > 10*planTime:"}},
		},
		{
			name: "ops: old plans stay", file: "internal/store/operations.go", suite: onDesk("^TestPlansExpire$"), says: `want the one that was started, and the last plan`,
			changes: []change{{"DELETE FROM {operations} WHERE id IN (?) AND state = ?", "DELETE FROM {operations} WHERE id IN (?) AND state <> ?"}},
		},
		{
			name: "ops: who plans the same is told nothing", file: "ops/plan.go", suite: onDesk("^TestPlansExpire$"), says: `planned by another: got`,
			changes: []change{{"case !other.By(s.who) && ", "case other.By(s.who) && "}},
		},
		{
			name: "ops: a plan without a consumer is for all", file: "ops/plan.go", suite: onDesk("^TestAllowIsAskedOfEach$"), says: `plan: got error`,
			changes: []change{{"if err := s.mayEach(a, p.Consumers); err != nil {", "if err := s.mayEach(a, nil); err != nil {"}},
		},
		{
			name: "ops: named messages are for all", file: "ops/change.go", suite: onDesk("^TestAllowIsAskedOfEach$"), says: `(requeue|cancel): got error`,
			changes: []change{{"err == nil && c.few() && s.who.Allow != nil", "err == nil && c.few() && s.who.Allow == nil"}},
		},
		{
			name: "ops: anybody stops anything", file: "ops/decide.go", suite: onDesk("^TestAllowIsAskedOfEach$"), says: `(undo|stop): got error`,
			changes: []change{{"if err := s.mayEach(d.action, o.consumers()); err != nil {", "if err := s.mayEach(d.action, nil); err != nil {"}},
		},
		{
			name: "ops: what is hidden is searched", file: "ops/content.go", suite: at("TestNoGuessing"), says: `where nothing is shown: got error`,
			changes: []change{{"\tif !shown {\n\t\treturn fmt.Errorf(\"%w: no", "\tif !shown {\n\t\treturn nil\n\t}\n\tif !shown {\n\t\treturn fmt.Errorf(\"%w: no"}},
		},
		{
			name: "ops: what Redact changes is searched", file: "ops/content.go", suite: at("TestNoGuessing"), says: `where it is hidden: got error`,
			changes: []change{{"if !maps.Equal(seen.Headers, part.Headers) || len(seen.Errors)", "if len(seen.Errors)"}},
		},
		{
			name: "ops: notes are for everybody", file: "ops/operation.go", suite: onDesk("^TestWhatOperationsTell$"), says: `a viewer sees note`,
			changes: []change{{"\t\to.Note, o.Hidden = \"\", true", "\t\to.Hidden = true"}},
		},
		{
			name: "ops: previews take the places of who looks", file: "ops/plan.go", suite: onDesk("^TestPreviewsHaveTheirOwnRoom$"), says: `who looks meanwhile: got error`,
			changes: []change{{"s.desk.enter(ctx, s.desk.previews, previewTime)", "s.desk.enter(ctx, s.desk.looks, previewTime)"}},
		},
	}
}

// runnerMutants have a runner do twice, too late, too fast or not at all what it is to do.
func runnerMutants() []mutant {
	return []mutant{
		{
			name: "ops: a step does not lock its operation", file: "internal/store/operations.go", suite: onDesk("^TestStopWaitsForTheStep$"), says: `the stop has not waited|after the stop: got`,
			changes: []change{{"\treturn s.LockOperation(ctx, tx, id)", "\trows, err := s.Operations(ctx, tx, OperationFilter{ID: id}, 1)\n\tif err != nil || len(rows) == 0 {\n\t\treturn o, false, err\n\t}\n\treturn rows[0], true, nil"}},
		},
		{
			name: "ops: a step ends with its runner", file: "ops/step.go", suite: onDesk("^TestAStepUnderWayIsDone$"), says: `want the step done`,
			changes: []change{{"context.WithTimeoutCause(context.WithoutCancel(ctx), stepTime", "context.WithTimeoutCause(ctx, stepTime"}},
		},
		{
			name: "ops: a lease waits for who has it locked", file: "internal/store/operations.go", suite: onDesk("^TestRunnersWaitForNobody$"), says: `operation is done`,
			changes: []change{{"ORDER BY id LIMIT 1 {lock free}", "ORDER BY id LIMIT 1 {lock}"}},
		},
		{
			name: "ops: canaries that are waited for take a place", file: "ops/step.go", suite: onDesk("^TestRunnersWaitForNobody$"), says: `operation is done`,
			changes: []change{{"\t\tw.leave() // for others", "\t\t// for others"}},
		},
		{
			name: "ops: what others fail at counts", file: "ops/trial.go", suite: onDesk("^TestOnlyWhatWasRequeuedCounts$"), says: `operation is done`,
			changes: []change{{"store.PoisonFilter{IDs: t.Sample}", "store.PoisonFilter{AfterID: t.Sample[0] - 1}"}},
		},
		{
			name: "ops: slower is not at once", file: "ops/pace.go", suite: suite{pkg: "./ops", tests: "^TestPaceBrakes$"}, says: `after braking: got`,
			changes: []change{{"if rate < p.rate {", "if rate < 0 {"}},
		},
		{
			name: "ops: all are carried out beside the only one", file: "ops/runner.go", suite: onDesk("^TestRunOnly$"), says: `want the second done, and only that`,
			changes: []change{{"store.OperationFilter{ID: only, States", "store.OperationFilter{States"}},
		},
	}
}
