//go:build unix

package main

// logMutants break the order of the event log, and the checkpoints of those who read it.
func logMutants() []mutant {
	writers := inLog("TestManyWritersLoseAndReorderNoEvent")
	return []mutant{
		{"log: read by the insert sequence", in("postgres.traits", replace(`"position"`, `"sequence"`),
			text("(SELECT h.position FROM {head} h WHERE h.id = 1)", "(SELECT COALESCE(MAX(h.sequence), 0) FROM {events} h)")), writers,
			`want the next|got it 0 times`},
		{"log: numbered in the statement that locks",
			both(in("postgres.numberLockSQL", text("SELECT position FROM {head} WHERE id = 1 FOR UPDATE SKIP LOCKED", "SELECT 0 AS position")),
				in("postgres.numberSQL", text("WITH todo AS MATERIALIZED (",
					"WITH lock AS MATERIALIZED (SELECT position FROM {head} WHERE id = 1 FOR UPDATE), todo AS MATERIALIZED ("),
					text("SET position = ? + p.n", "SET position = ? + (SELECT position FROM lock) + p.n"))), writers,
			`were numbered meanwhile|duplicate key`},
		{"log: numbered from a guessed bound", in("postgres.numberSQL", text("WHERE position IS NULL ORDER BY sequence LIMIT ?",
			"WHERE position IS NULL AND sequence >= "+
				"(SELECT COALESCE(MAX(sequence), 0) - 1 FROM {events} WHERE position > 0) ORDER BY sequence LIMIT ?")),
			inLog("TestAnIdleWriterDelaysOnlyItself"), `after the commit: got position`},
		{"log: the head is read after the page", in("batch.read", replace("b.runner.store.EventLog.Head(…)", "int64(1<<62), error(nil)"),
			before("full := len(rows) == limit",
				"if head, err = b.runner.store.EventLog.Head(ctx, b.tx); err != nil { return false, err }; page.UpTo = min(head, page.UpTo)")),
			inLog("TestEventsNumberedDuringAPageAreNotSkipped"), `want the fold of the log`},
		{"log: streams are locked in the order given", in("appending.reserve", drop("slices.SortFunc")),
			inLog("TestSeveralStreamsDoNotDeadlock"), `append to two streams`},
		{"projection: the checkpoint moves in another transaction",
			both(in("projection.batch.run", replace("b.runner.store.Readers.Move(…)", "true, error(nil)")),
				in("projection.shard.step", before("s.blameless.Store(0)",
					"_ = txn.InTx(ctx, s.runner.db, func(tx bun.Tx) error { b.sub.Role = \"\"; _, err := s.runner.store.Readers.Move(ctx, tx, b.sub, b.to); "+
						"return err })"))),
			inLog("TestTheCheckpointMovesWithTheWrites"), `want each of 20 once|want the fold of the log`},
		{"projection: a ROLLBACK in SQL is not noticed", in("ReaderStore.Move", never(`before != ""`)),
			inLog("TestAProjectionThatBreaksItsTransactionIsCounted/rolls_back_in_SQL/postgres"), `no rows in result set`},
		{"projection: a parked event is a replay", in("EventStore.ReadEvents", text("AND NOT k.replay", "AND 1 = 0")),
			inLog("TestAParkedEventIsNoReplayOfARebuild"), `rebuilt: got mails`},
		{"projection: a timeout is never its own fault", in("projection.innocent",
			replace("dberr.IsConnectionDoubtful(err) && dberr.ClassOf(err) != dberr.Timeout",
				"(dberr.IsUnavailable(err) || dberr.ClassOf(err) == dberr.Timeout)")), inLog("TestAFailingStatementOfAProjectionIsParked"),
			`runs: got`},
	}
}

// scheduleMutants break that a schedule fires once for each fire time, and holds back no other.
func scheduleMutants() []mutant {
	return []mutant{
		{"schedule: advanced in another transaction", both(in("schedule.Processor.advance", argument("p.store.Schedules.Update", 2, "-1")),
			in("schedule.Processor.fireTx", before("if len(sent) > 0 {…}",
				"for _, row := range rows { _, change, _ := p.plan(row); _, err = p.store.Schedules.Update(ctx, p.db, row.ID, change) }"))),
			inSchedule("TestAFireAndItsNextTimeAreOneCommit"), `the schedule is moved on when its message is committed already`},
		{"schedule: a slow layer is cut off",
			in("ScheduleStore.LockDue", replace("s.within(ctx, tx, limit)", "s.within(ctx, tx, min(limit, 5*time.Second))")),
			inSchedule("TestASlowProduceLayerDoesNotBlockSchedules/postgres"), `all schedules fire|calls of the layer: got`},
		{"schedule: a call that hangs counts for all", in("schedule.Processor.decodable", replace("p.aside.calls(row.ID)", "&p.abandoned")),
			inSchedule("TestAScheduleThatHangsDoesNotStopTheOthers"), `in half an hour and error`},
		{"schedule: a failure moves the fire time",
			in("schedule.Processor.postpone", before("if row.Due() {…}", "change.AvailableAfter = row.Now.Time")),
			inSchedule("TestAFailedFireKeepsItsScheduledTime/after_a_new_payload/postgres"), `got runs for`},
		{"schedule: a failure postpones it for all", in("schedule.Processor.next", omit("Tried")),
			inSchedule("TestAnOlderReleaseDoesNotDelayWhatANewerOneCanFire/postgres"), `fire: got 0, error <nil>, want 1`},
	}
}
