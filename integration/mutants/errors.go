//go:build unix

package main

const (
	errorClasses = "internal/dberr/class.go"
	blames       = "outbox/blame.go"
	settling     = "outbox/settler.go"
)

// errorMutants break the table of errors and what follows from it.
func errorMutants() []mutant {
	return []mutant{
		{
			name: "a statement timeout is an outage", file: errorClasses, suite: suite{pkg: inClasses, tests: "^TestErrorClasses$/^postgres$"}, says: `statement timeout: got unavailable`,
			changes: []change{{"case \"57014\":\n\t\treturn Timeout", "case \"57014\":\n\t\treturn Unavailable"}},
		},
		{
			name: "an aborted transaction excuses the handler", file: blames, suite: suite{pkg: inOutbox, tests: "^TestWhatAHandlerCausesCounts$/^postgres$"}, says: `gave up waiting: all are settled`,
			changes: []change{{"case dberr.Exhausted, dberr.Unavailable:", "case dberr.Exhausted, dberr.Unavailable, dberr.Timeout, dberr.LockTimeout:"}},
		},
		{
			name: "uncounted runs are never counted", file: blames, suite: suite{pkg: inOutbox, tests: "^TestNothingRepeatsForEverUncounted$"}, says: `gave up waiting: poisoned`,
			changes: []change{{"if n >= maxUncounted &&", "if n < 0 &&"}},
		},
		{
			name: "READ COMMITTED is believed", file: "internal/store/store.go", suite: suite{pkg: inOutbox, tests: "^TestReadCommittedMustBeEffective$"}, says: `got error <nil>, want outbox.ErrServer`,
			changes: []change{{"err == nil && server.Name != \"\"", "err == nil && false"}},
		},
		{
			name: "a conflict is not repeated at once", file: blames, suite: suite{pkg: inOutbox, tests: "^TestLostConflictsAreRepeatedAtOnce$"}, says: `runs put back: got \d+, want 0`,
			changes: []change{{"conflictTries = 3 ", "conflictTries = 1 "}},
		},
		{
			name: "settling waits for what is locked", file: "internal/store/postgres/settle.go", suite: suite{pkg: inOutbox, tests: "^TestALockedMessageHoldsUpNobody$/^postgres$"}, says: `gave up waiting: the (outcome is put aside|others are settled)|beside a locked message: the slowest|health: got .* want ready`,
			changes: []change{{"FOR UPDATE SKIP LOCKED),\nbusy", "FOR UPDATE),\nbusy"}, {"set_config('lock_timeout', '500ms', true)", "set_config('lock_timeout', '0', true)"}},
		},
		{
			name: "what cannot be settled holds up the others", file: settling, suite: suite{pkg: inOutbox, tests: "^TestWhatCannotBeSettledIsPutAside$/^a_timeout$"}, says: `gave up waiting: the others are settled`,
			changes: []change{{"if ctx.Err() == nil && !r.outage.Failed(\"settle\", err, wait) {", "if ctx.Err() == nil && !r.outage.Failed(\"settle\", err, wait) && false {"}},
		},
		{
			name: "Admin locks what is claimed", file: "internal/store/postgres/edit.go", suite: suite{pkg: inOutbox, tests: "^TestAdminLocksNoClaimedMessage$"}, says: `gave up waiting: settled beside the transaction|put aside: got 1`,
			changes: []change{{"WHERE id IN (?) AND id NOT IN (` + heldSQL + `) ORDER BY", "WHERE id IN (?) ORDER BY"}},
		},
		{
			name: "poisoning under the message's own id", file: "internal/store/dialect/fragments.go", suite: suite{pkg: inStore, tests: "^TestPoisoningFindsAFreeID$/^sqlite$"}, says: `gave up waiting: poisoned again`,
			changes: []change{{"CASE WHEN EXISTS (SELECT 1 FROM {poisoned} p WHERE p.id = {id})", "CASE WHEN FALSE"}},
		},
		{
			name: "errors are cut before they are quoted", file: "internal/errorlog/errorlog.go", suite: suite{pkg: inOutbox, tests: "^TestLongErrorsAreCut$/^sqlite$"}, says: `stored errors: got \d+ bytes`,
			changes: []change{{"cutJSON(Clean(attempts[i].Error, MaxBytes), MaxBytes)", "Clean(attempts[i].Error, MaxBytes)"}, {"func cutJSON(", "func cutJSONUnused("}},
		},
	}
}
