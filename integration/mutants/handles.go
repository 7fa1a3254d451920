//go:build unix

package main

func inHandles(names string) suite { return tests("integration/handles", names) }

// handleMutants break the library in transactions that are not Bun's.
func handleMutants() []mutant {
	return []mutant{
		{"handles: a statement does not reach the caller's transaction", in("txn.Through", drop("seen.Tx = tx")),
			inHandles("TestProduceIsPartOfAnyTransaction/sql.Tx/sqlite"), `already been committed or rolled back`},
		{"handles: a pool passes for a transaction", in("txn.Through", never("!ends")),
			inHandles("TestHandlesThatAreRefused/sqlite"), `a pool: got error`},
		{"handles: the library ends a caller's transaction", in("guest.end", drop("g.over = true")),
			inHandles("TestProduceIsPartOfAnyTransaction/another_library's/sqlite"), `already been committed or rolled back`},
		{"handles: nothing wakes at the commit", in("Producer.Within", drop("wakeups.Send(p.registry)")),
			inHandles("TestWithinWakesAtTheCommit/sqlite"), `has not started after a minute`},
		{"handles: Within inside a transaction of the library", in("Producer.Within", never("txn.IsWithin(ctx)")),
			inHandles("TestWithinWakesAtTheCommit/sqlite"), `within inside of it`},
		{"handles: a consumer leaves rows open", in("opened.end", never("o.is.Load()")),
			inHandles("TestATransactionOfPgxInAConsumer"), `gave up waiting|panic: test timed out`},
		{"handles: a statement of pgx beside open rows", in("transaction.locked", never("t.open.is.Load()")),
			inHandles("TestATransactionOfPgxInAConsumer"), `a statement beside an open batch|panic: test timed out|gave up waiting`},
		{"handles: pgx prepares the library's queries", in("unprepared.QueryContext", never("len(args) == 0")),
			inHandles("TestOnePoolPreparesNothingOfTheLibrary"), `statements that pgx has prepared, want 0`},
	}
}
