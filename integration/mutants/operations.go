//go:build unix

package main

const atDesk = "./integration/ops"

func onDesk(test string) suite { return suite{pkg: atDesk, tests: test + "/^postgres$"} }

// deskMutants let people do what they may not, or change what they have not seen.
func deskMutants() []mutant {
	const kinds = "ops/kinds.go"
	roles := func(test string) suite { return suite{pkg: atDesk, tests: test} }
	at := onDesk
	return []mutant{
		{
			name: "ops: an operator discards", file: "ops/role.go", suite: roles("^TestRoles$"), says: `Discard as operator: forbidden is false`,
			changes: []change{{"RunNow, Reschedule, Requeue, RunSchedule", "RunNow, Reschedule, Requeue, Discard, RunSchedule"}},
		},
		{
			name: "ops: who has no name may do all", file: "ops/role.go", suite: roles("^TestNobodyMayDoAnything$"), says: `no name: .*: got error`,
			changes: []change{{"\t\tp.Role = None\n", ""}},
		},
		{
			name: "ops: a plan asks nobody", file: "ops/plan.go", suite: roles("^TestNobodyMayDoAnything$"), says: `Plan: got error`,
			changes: []change{{"if err := s.may(a, target.consumer()); err != nil {", "if err := s.may(a, target.consumer()); err != nil && a != \"\" {"}},
		},
		{
			name: "ops: contents are shown to viewers", file: "ops/content.go", suite: at("^TestContents$"), says: `a viewer sees the secret`,
			changes: []change{{" || s.may(Read, c.Consumer) != nil", ""}},
		},
		{
			name: "ops: reasons are not redacted", file: "ops/poisoned.go", suite: at("^TestContents$"), says: `sees the secret`,
			changes: []change{{"\tif len(c.Errors) == 0 {\n\t\treturn \"\"\n\t}\n\treturn c.Errors[0]", "\tif len(c.Errors) == 0 {\n\t\treturn m.Reason\n\t}\n\treturn m.Reason"}},
		},
		{
			name: "ops: what is hidden is lost by an edit", file: "ops/poisoned.go", suite: at("^TestNoEditOfWhatIsHidden$"), says: `want ErrRedacted`,
			changes: []change{{"!shown || string(c.Payload) != string(m.Payload)", "!shown || c.Consumer != m.Consumer"}},
		},
		{
			name: "ops: what fails later is part of the plan", file: kinds, suite: at("^TestAnOperation$"), says: `done: got`,
			changes: []change{{"return poison.Batch{Filter: *s.target.Poisoned, After: s.row.AfterID, UpTo: s.row.UpToID", "return poison.Batch{Filter: poison.Filter{Consumer: s.target.Poisoned.Consumer}, After: s.row.AfterID, UpTo: 1 << 62"}},
		},
		{
			name: "ops: what comes to match later is part of the plan", file: "ops/plan.go", suite: at("^TestAPlanChangesWhatItHasSeen$"), says: `commits late: 2 planned, 3 changed`,
			changes: []change{{"pinnedTarget{target, preview.ids}", "pinnedTarget{target, nil}"}},
		},
		{
			name: "ops: consumers that nobody was asked of are touched", file: kinds, suite: at("^TestOthersAreNotTouched$"), says: `discard: 4 planned, 8 changed`,
			changes: []change{{", Consumers: s.consumers()}", "}"}},
		},
	}
}

// operationMutants have operations begin, go on or end as they must not.
func operationMutants() []mutant {
	const (
		steps = "ops/step.go"
		store = "internal/store/operations.go"
	)
	inOperations := suite{pkg: inStore, tests: underStore + "^operations$"}
	at := onDesk
	return []mutant{
		{
			name: "ops: an operation starts before it may", file: store, suite: inOperations, says: `not started:|too early:`,
			changes: []change{{`"starts_at <= {now} AND (leased_until`, `"(leased_until`}},
		},
		{
			name: "ops: two work on an operation", file: store, suite: inOperations, says: `leased by:|renewed:`,
			changes: []change{{"(leased_until IS NULL OR leased_until < {now})", "(leased_until IS NULL OR leased_until > {now} OR leased_until < {now})"}},
		},
		{
			name: "ops: a plan is started twice", file: "ops/decide.go", suite: at("^TestWhoStarts$"), says: `it was started [2-8] times`,
			changes: []change{{"\tcase o.underWay():\n", "\tcase o.ID < 0:\n"}, {"case o.State != Planned:", "case o.State == Done:"}},
		},
		{
			name: "ops: anybody starts a plan", file: "ops/decide.go", suite: at("^TestWhoStarts$"), says: `by another: got error`,
			changes: []change{{"case !o.By(s.who):", "case o.Actor == \"\":"}},
		},
		{
			name: "ops: a step is repeated after a crash", file: steps, suite: at("^TestOperationsOutliveTheirRunners$"), says: `got .* messages, .* different, .* counted`,
			changes: []change{{"if _, err := w.desk.store.ChangeOperation(ctx, tx, w.own(), change); err != nil {", "change.Changed = 0\n\tif _, err := w.desk.store.ChangeOperation(ctx, tx, w.own(), change); err != nil {"}},
		},
		{
			name: "ops: canaries that fail are not looked at", file: "ops/trial.go", suite: at("^TestCanaries$"), says: `operation is done, want paused`,
			changes: []change{{"case failed*badPart > len(t.IDs):", "case failed*badPart > 1000*len(t.IDs):"}},
		},
		{
			name: "ops: what comes back goes on", file: "ops/trial.go", suite: at("^TestWhatComesBackStopsIt$"), says: `operation is done, want paused`,
			changes: []change{{"err != nil || n*badPart <= len(t.Sample)", "err != nil || n <= 1000*len(t.Sample)"}},
		},
		{
			name: "ops: an operation does not keep its pace", file: "ops/pace.go", suite: at("^TestPace$"), says: `60 at 30/s took`,
			changes: []change{{"return int(p.left)", "return int(p.left) + stepSize"}},
		},
		{
			name: "ops: what was stopped goes on", file: steps, suite: at("^TestStop$"), says: `are left later`,
			changes: []change{{"&& (state == Waiting || state == Trying || state == Running)", "&& state != Done"}, {"if err != nil || len(rows) == 0 || !w.workOn(rows[0]) {", "if err != nil || len(rows) == 0 || rows[0].State == string(Done) {"}, {"if err != nil || !found || !w.workOn(locked) {", "if err != nil || !found {"}},
		},
		{
			name: "ops: the audit is asked too late", file: "ops/change.go", suite: at("^TestAudit$"), says: `something was changed all the same`,
			changes: []change{{"if err := s.inTx(ctx, func(tx bun.Tx) error { return s.noted(ctx, tx, &c, Begun) }); err != nil {", "if err := s.inTx(ctx, func(tx bun.Tx) error { return s.noted(ctx, tx, &c, Begun) }); err != nil {\n\t\t_, _ = fn(ctx, db)"}},
		},
	}
}

// commandMutants have the command do or show what it was not asked to.
func commandMutants() []mutant {
	in := func(test string) suite { return suite{pkg: "./cmd/asyncmonolith", tests: "^" + test + "$"} }
	return []mutant{
		{
			name: "ops: the same is started twice", file: "ops/decide.go", suite: onDesk("^TestTheSameIsStartedOnce$"), says: `the same: got [2-6] operations`,
			changes: []change{{"o.aim() == other.aim()", `o.aim() == ""`}},
		},
		{
			name: "ops: a preview is kept", file: "ops/plan.go", suite: onDesk("^TestPreview$"), says: `and 1 operations`,
			changes: []change{{"\tpreview, err := s.preview(ctx, a, &target)\n\tif err != nil {\n\t\treturn Preview{}", "\tpreview, err := s.preview(ctx, a, &target)\n\t_, _ = s.Plan(ctx, a, target)\n\tif err != nil {\n\t\treturn Preview{}"}},
		},
		{
			name: "command: a reason is enough to change", file: "cmd/asyncmonolith/change.go", suite: in("TestChangesAreAskedFor"), says: `want exit code 4`,
			changes: []change{{`if a.yes {`, `if a.yes || a.reason != "" {`}},
		},
		{
			name: "command: nobody has to say why", file: "cmd/asyncmonolith/change.go", suite: in("TestChangesAreAskedFor"), says: `--yes without a reason`,
			changes: []change{{`strings.TrimSpace(a.reason) == ""`, `strings.TrimSpace(a.reason) == "-"`}},
		},
		{
			name: "command: contents are shown unasked", file: "cmd/asyncmonolith/root.go", suite: in("TestContentsAreAskedFor"), says: `want no content`,
			changes: []change{{"case a.content:", "case !a.content || a.json:"}},
		},
		{
			name: "command: texts are written as they are stored", file: "cmd/asyncmonolith/internal/show/show.go", suite: in("TestStoredTextsAreNoCommands"), says: `which a terminal would act upon`,
			changes: []change{{"if utf8.ValidString(s) && !strings.ContainsFunc(s, unsafe) {", "if utf8.ValidString(s) || !strings.ContainsFunc(s, unsafe) {"}},
		},
		{
			name: "command: passwords among arguments are taken", file: "cmd/asyncmonolith/root.go", suite: in("TestPasswordsOfArgumentsAreRefused"), says: `want that it is refused`,
			changes: []change{{"case a.dsn != \"\" && connect.Secret(a.dsn).HasPassword():", "case a.dsn == \"-\" && connect.Secret(a.dsn).HasPassword():"}},
		},
		{
			name: "explain: a program without consumers knows better than the fleet", file: "outbox/admin_explain.go", suite: onDesk("^TestExplainWithoutConsumers$"), says: `paused: got`,
			changes: []change{{"return len(a.registry.Consumers()) == 0 }", "return len(a.registry.Consumers()) == 1<<20 }"}},
		},
	}
}
