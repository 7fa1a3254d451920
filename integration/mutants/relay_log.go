//go:build unix

package main

// logMutants lose, double or disorder what leaves the event log, or enters it.
func logMutants() []mutant {
	const shard = "relay/shard.go"
	return []mutant{
		{
			name: "relay log: a shard that was elsewhere fails as if it had been here", file: "relay/shard.go", suite: onPostgres("^TestAShardThatWasElsewhere$"), says: `lines that it waits: got 1`,
			changes: []change{{"s.told, s.failures, s.overtaken = false, 0, 0", "s.told = false"}},
		},
		{
			name: "relay log: cursor before append", file: shard, suite: onPostgres("^TestAnAppendThatFailsLeavesNoGap$"), says: `\d+ of 200 events are there`,
			changes: cursorBeforeAppend(),
		},
		{
			name: "relay log: no fence", file: shard, suite: onPostgres("^TestAZombieIsFenced$"), says: `is there twice|comes after`,
			changes: notFenced(),
		},
		{
			name: "relay log: mark not told by the broker", file: shard, suite: onPostgres("^TestAKillBetweenAppendAndMove$"), says: `is there twice|comes after`,
			changes: []change{{"if removed || s.sub.Mark == int64(mark) ||", "if removed || s.sub.Mark >= 0 ||"}},
		},
		{
			name: "relay log: a shard is everybody's", file: "internal/store/leases.go", suite: suite{pkg: inStore, tests: underStore + "^leases_of_subscriptions$"}, says: `by another`,
			changes: []change{{"AND (owner = ? OR leased_until IS NULL OR leased_until <= {now})", "AND (owner = ? OR leased_until IS NULL OR leased_until <= {now} OR 1 = 1)"}},
		},
		{
			name: "relay log: the cursor passes what failed", file: shard, suite: onPostgres("^TestAPublisherThatIsNoAppender$"), says: `got \d+ events, want 100`,
			changes: []change{{"\t\t\treturn i, err\n", "\t\t\t_ = i\n"}},
		},
		{
			name: "relay: several processes append at once", file: "relay/turn.go", suite: onPostgres("^TestOneProcessAtATimeReceivesIntoTheLog$"), says: `want it to stand by`,
			changes: []change{{"return r.intoLog && !r.shared", "return r.intoLog && r.shared"}},
		},
		{
			name: "relay: what is written again is as layers of the producer have left it", file: "outbox/producer.go", suite: onPostgres("^TestLayersOfTheProducerChangeAMessageOnce$"), says: `want what the layer does, once`,
			changes: []change{{"batch = store.Each(batch, (*bus.Message).Clone)", "batch = batch[:len(batch):len(batch)]"}},
		},
		{
			name: "relay: a process appends after its turn", file: "relay/inbox.go", suite: onPostgres("^TestAProcessWhoseTurnIsOverAppendsNothing$"), says: `got 2 events, and 2 acknowledged, want those`,
			changes: []change{{"return r.holdsTurn(ctx, tx, rc)", "return nil"}},
		},
		{
			name: "relay: a projection takes the row of a receiver", file: "eventlog/projection/projection.go", suite: suite{pkg: "./integration/eventlog", tests: "^TestProjectionMistakes$"}, says: `got <nil>, want an error with "Name \\"receive:x`,
			changes: []change{{`"relay:", "receive:"}`, `"relay:"}`}},
		},
		{
			name: "relay log: a publisher may take for ever", file: "relay/call.go", suite: onPostgres("^TestALogRelayWhosePublisherHangs$"), says: `gave up waiting: the first is given up`,
			changes: []change{{"time.NewTimer(timeout + callGrace)", "time.NewTimer(1000*timeout + 3600*callGrace)"}},
		},
		{
			name: "relay log: calls that hang are no bound", file: "relay/call.go", suite: onPostgres("^TestALogRelayWhosePublisherHangs$"), says: `got \d+ calls that hang, want 4`,
			changes: []change{{"hanging.Load() >= mostHanging", "hanging.Load() > 100*mostHanging"}},
		},
		{
			name: "relay log: a stream that was erased is kept by others", file: "relay/into_log.go", suite: onPostgres("^TestALogIntoAnother$"), says: `of the stream: got 21 events, want the last one alone`,
			changes: []change{{"\t\terr := r.config.Log.Tombstone(ctx, tx, m.Event.Stream)\n", "\t\terr := r.config.Log.Import(ctx, tx, m)\n"}},
		},
	}
}

// logBarMutants are caught by bars whose processes pass a log on, or move a consumer.
func logBarMutants() []mutant {
	const shard, order = "relay/shard.go", "14-order"
	return []mutant{
		{
			name: "bar 14-order: no fence", file: shard, suite: bar(order), says: `twice [1-9]|inversions [1-9]`,
			changes: notFenced(),
		},
		{
			name: "relay: a log relay tries again what cannot be cured", file: "relay/shard_failure.go", suite: suite{pkg: "./integration/relay", tests: "^TestALogRelayThatDoesNotFit$"}, says: `want it halted at once`,
			changes: []change{{"bus.VerdictOf(err).Outcome == bus.Condemned:", "bus.VerdictOf(err).Outcome == bus.Poisoned:"}},
		},
		{
			name: "relay: whoever is behind halts a shard of somebody else", file: "internal/store/leases.go", suite: suite{pkg: "./integration/relay", tests: "^TestWhoIsBehindHaltsNothing$/^postgres$"}, says: `want none halted`,
			changes: []change{{"AND status = ? AND owner = ?`\n\treturn retried(ctx, db, func(db bun.IDB) (bool, error) {\n\t\treturn dialect.AffectedOne(s.names.Query(ctx, db, text,",
				"AND status = ? AND ? <> ''`\n\treturn retried(ctx, db, func(db bun.IDB) (bool, error) {\n\t\treturn dialect.AffectedOne(s.names.Query(ctx, db, text,"}},
		},
		{
			name: "bar 14-order: appends on no condition", file: "relay/nats/appender.go", suite: bar(order), says: `stale appends: got [1-9]`,
			changes: []change{{"\tmsgs[0].Header.Set(expectedHeader, strconv.FormatUint(after, 10))\n\tmsgs[0].Header.Set(expectedOfHeader, a.filter(shard))\n", "\t_ = strconv.FormatUint(after, 10)\n"}},
		},
		{
			name: "bar 14-order: cursor before append", file: shard, suite: bar(order), says: `the log has.*got lost [1-9]`,
			changes: cursorBeforeAppend(),
		},
		{
			name: "bar 14-order: mark not told by the broker", file: shard, suite: bar(order), says: `twice [1-9]|inversions [1-9]`,
			changes: []change{{"if removed || s.sub.Mark == int64(mark) ||", "if removed || s.sub.Mark >= 0 ||"}},
		},
		{
			name: "bar 14-order: redelivered behind newer ones", file: "relay/nats/subscriber.go", suite: bar(order), says: `inversions [1-9]`,
			changes: []change{{"\t\tif s.config.Ordered {\n", "\t\tif s.config.Ordered && s.config.Batch < 0 {\n"}},
		},
		{
			name: "bar 14-move: whoever moves is for all", file: "relay/outbound.go", suite: bar("14-move"), says: `unknown: \d+ of them, such as \[\{unrelated`,
			changes: []change{{"\te.Set(consumersAttribute, names)\n", ""}},
		},
		{
			name: "bar 14-move: a consumer that moves is settled before the ack", file: "relay/publish.go", suite: bar("14-move"), says: `I1: lost`,
			changes: settledBeforeAck(),
		},
		{
			name: "bar 14-soak: the inbox forgets too soon", file: "relay/runner.go", suite: bar("14-soak"), says: `rows of the inbox of ring-\d: got \d+, want`,
			changes: []change{{"rc.retention, forgetRows)", "time.Second, forgetRows)"}},
		},
		{
			name: "bar 14-soak: what was received stays in memory", file: "relay/inbox.go", suite: bar("14-soak"), says: `heap of a worker of ring-\d: got it from`,
			changes: []change{{"\terr := guarded(\"RunnerConfig.Telemetry\", func(", "\tkept.Store(new(byte), make([]byte, 1<<20))\n\terr := guarded(\"RunnerConfig.Telemetry\", func("}, {"const takeTimeout = ", "var kept sync.Map\n\nconst takeTimeout = "}, {"\t\"fmt\"\n", "\t\"fmt\"\n\t\"sync\"\n"}},
		},
		{
			name: "bar 14-soak: no dedupe", file: "relay/inbox.go", suite: bar("14-soak"), says: `I6: effects other than one`,
			changes: notDeduped(),
		},
	}
}

func notFenced() []change {
	return []change{{"\t\treturn s.appender.Append(ctx, s.number, uint64(before), records)\n",
		"\t\tnewest, err := s.appender.Append(ctx, s.number, uint64(before), records)\n\t\tif errors.Is(err, ErrOvertaken) {\n\t\t\t_, after, _ := s.appender.Last(ctx, s.number)\n\t\t\tnewest, err = s.appender.Append(ctx, s.number, after, records)\n\t\t}\n\t\treturn newest, err\n"}}
}

func cursorBeforeAppend() []change {
	return []change{{"\tmark := s.sub.Mark\n\tif len(b.records) > 0 {\n", "\tmark := s.sub.Mark\n\tif _, err := r.move(ctx, s, b.to, mark); err != nil {\n\t\treturn false, err\n\t}\n\tif len(b.records) > 0 {\n"}}
}
