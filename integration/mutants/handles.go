//go:build unix

package main

func inHandles(names string) suite { return tests("integration/handles", names) }

// handleMutants break the library in transactions that are not Bun's.
func handleMutants() []mutant {
	return []mutant{
		{"handles: a statement does not reach the caller's transaction", in("txn.Through", drop("seen.Tx = tx")),
			inHandles("TestProduceIsPartOfAnyTransaction/sql.Tx/sqlite"), `already been committed or rolled back`},
		{"handles: a pool passes for a transaction", in("txn.Through", never("CheckEnds")),
			inHandles("TestHandlesThatAreRefused/sqlite"), `a pool: got error`},
		{"handles: the library ends a caller's transaction", in("guest.end", drop("g.over = true")),
			inHandles("TestProduceIsPartOfAnyTransaction/another_library's/sqlite"), `already been committed or rolled back`},
		{"handles: nothing wakes at the commit", in("Producer.Within", drop("wakeups.Send(p.registry)")),
			inHandles("TestWithinWakesAtTheCommit/sqlite"), `has not started after a minute`},
		{"handles: Within inside a transaction of the library", in("Producer.Within", never("txn.IsWithin(ctx)")),
			inHandles("TestWithinWakesAtTheCommit/sqlite"), `within inside of it`},
		{"handles: a consumer leaves rows open", in("shared.finish", never("closeOpen != nil")),
			inHandles("TestATransactionOfPgxInAConsumer"), `gave up waiting|panic: test timed out`},
		{"handles: a statement of pgx beside open rows", in("shared.enter", never("s.close != nil")),
			inHandles("TestATransactionOfPgxInAConsumer"), `a statement beside an open batch|panic: test timed out|gave up waiting`},
		{"handles: a savepoint of pgx that is over runs statements", in("transaction.end", drop("t.over = true")),
			inHandles("TestASavepointOfPgxThatIsOver"), `want ErrTxClosed`},
		{"handles: savepoints of pgx share a name", in("transaction.Begin", drop("t.points++")),
			inHandles("TestARollbackOfASavepointOfPgx"), `got rows|the transaction is ended by its owner`},
		{"handles: a consumer's transaction of pgx outlives it", in("shared.finish", drop("s.done = true")),
			inHandles("TestATransactionOfPgxThatAConsumerKeeps"), `panic: test timed out|gave up waiting`},
		{"handles: a batch of pgx begins a transaction", in("transaction.SendBatch", never("Tx")),
			inHandles("TestABatchOfPgxThatBeginsATransaction"), `want an error`},
		{"handles: a tracer of pgx sees how its connection is reached", in("unprepared.ExecContext", never("len(args) == 1")),
			inHandles("TestATracerOfPgxSeesTheStatementsAlone"), `want the statements alone`},
		{"handles: a consumer's ROLLBACK in SQL is not noticed",
			in("removeSQL", text("AND (extract(epoch FROM now()) * 1000000)::bigint = ?", "AND ? <> 0")),
			inHandles("TestAConsumerThatMisusesItsTransaction/rolls_back_in_SQL/postgres"), `got effects`},
		{"handles: a ROLLBACK in SQL of a consumer of single messages is not noticed",
			in("removeOneSQL", text("AND (extract(epoch FROM now()) * 1000000)::bigint = ?::bigint", "AND ?::bigint <> 0")),
			inHandles("TestAConsumerThatMisusesItsTransaction/rolls_back_in_SQL/postgres"), `got effects|got \d+`},
		{"handles: rows that a consumer leaves open cost no attempt", in("consumerTx.undone", drop("return errRowsOpen")),
			inHandles("TestAConsumerThatAlwaysLeavesRowsOpen/alone"), `want an error with|gave up waiting`},
		{"handles: a panic of a handle locks the call", in("guest.QueryContext", drop("defer g.recovered(&err)")),
			inHandles("TestHandlesThatAreRefused/postgres"), `panic: `},
		{"handles: two statements of pgx at once", in("shared.enter", never("s.busy")),
			inHandles("TestTwoStatementsAtOnceInATransactionOfPgx"), `panic: test timed out|got no error`},
		{"handles: a statement beside open rows reaches pgx", in("handle.free", never("IsBusy")),
			inHandles("TestCallsInASavepointOfPgx"), `beside open rows`},
		{"handles: pgx prepares the library's queries", in("unprepared.QueryContext", never("len(args) == 0")),
			inHandles("TestOnePoolPreparesNothingOfTheLibrary"), `statements that pgx has prepared, want 0`},
	}
}
