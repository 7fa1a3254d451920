//go:build unix

package main

func inHandles(names string) suite { return tests("integration/handles", names) }

// handleMutants break the library in transactions that are not Bun's.
func handleMutants() []mutant {
	return []mutant{
		{"handles: a statement does not reach the caller's transaction", in("txn.Through", drop("seen.Tx = tx")),
			inHandles("TestProduceIsPartOfAnyTransaction/sql.Tx/sqlite"), `already been committed or rolled back`},
		{"handles: the library ends a caller's transaction", in("guest.end", drop("g.over = true")),
			inHandles("TestProduceIsPartOfAnyTransaction/another_library's/sqlite"), `already been committed or rolled back`},
		{"handles: savepoints of pgx share a name", in("transaction.savepoint", replace("t.point", "1")),
			inHandles("TestARollbackOfASavepointOfPgx"), `got rows`},
		{"handles: a consumer's ROLLBACK in SQL is not noticed",
			both(in("stillBegunSQL", text("(extract(epoch FROM now()) * 1000000)::bigint = ?", "? <> 0")),
				in("removeOneSQL", text("(extract(epoch FROM now()) * 1000000)::bigint = ?::bigint", "?::bigint <> 0"))),
			inHandles("TestAConsumerThatMisusesItsTransaction/rolls_back_in_SQL/postgres"), `got effects`},
		{"produce: an inner savepoint hides the outer one", in("txn.ThroughDeadlocks", replace(`savepoint(tx, "deadlock")`, `savepoint(tx, "call")`)),
			tests("integration/txn", "TestAFailedCallInACallersTransactionIsRolledBack/postgres"), `the tables after a call that failed`},
		{"handles: pgx prepares the library's queries", in("unprepared.QueryContext", never("len(args) == 0")),
			inHandles("TestOnePoolPreparesNothingOfTheLibrary"), `statements that pgx has prepared, want 0`},
	}
}
