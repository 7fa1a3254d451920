//go:build unix

package main

// guestMutants break how the library behaves in transactions that are not its own.
func guestMutants() []mutant {
	return []mutant{
		{
			name: "no savepoint in a caller's transaction", file: "internal/txn/txn.go",
			suite: suite{pkg: inTxn, tests: "^TestWhatFailsInACallersTransactionIsTakenBack$"}, says: "the tables after a call that failed|go on after the error",
			changes: []change{{"	if !ok {\n		return fn()\n	}\n	name := savepoint(tx)\n", "	if !ok || ctx != nil {\n		return fn()\n	}\n	name := savepoint(tx)\n"}},
		},
		{
			name: "a message is removed as its consumer has left the transaction", file: "internal/store/dialect/names.go",
			suite: suite{pkg: inOutbox, tests: "^TestRemovalIsNotLedAstray$"}, says: "poisoned: got|messages of the other schema",
			changes: []change{{"	if session.Role == \"\" {\n", "	if session != (Session{}) || session.Role == \"\" {\n"}},
		},
		{
			name: "a projection's timeout is nobody's fault", file: "eventlog/projection/batch.go",
			suite: suite{pkg: "./integration/eventlog", tests: "^TestAFailingStatementOfAProjectionIsParked$"}, says: "runs: got",
			changes: []change{{"dberr.IsConnectionDoubtful(err) && dberr.ClassOf(err) != dberr.Timeout\n", "(dberr.IsUnavailable(err) || dberr.ClassOf(err) == dberr.Timeout)\n"}},
		},
	}
}
