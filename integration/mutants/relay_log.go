//go:build unix

package main

// logMutants lose, double or disorder what leaves the event log, or enters it.
func logMutants() []mutant {
	const shard = "relay/shard.go"
	return []mutant{
		{
			name: "relay log: cursor before append", file: shard, suite: onPostgres("^TestAnAppendThatFailsLeavesNoGap$"), says: `\d+ of 200 events are there`,
			changes: []change{{"\tmark := s.sub.Mark\n\tif len(b.records) > 0 {\n", "\tmark := s.sub.Mark\n\tif _, err := r.move(ctx, s, b.to, mark); err != nil {\n\t\treturn false, err\n\t}\n\tif len(b.records) > 0 {\n"}},
		},
		{
			name: "relay log: no fence", file: shard, suite: onPostgres("^TestAZombieIsFenced$"), says: `is there twice|comes after`,
			changes: []change{{"\t\treturn s.appender.Append(ctx, s.number, uint64(before), records)\n",
				"\t\tnewest, err := s.appender.Append(ctx, s.number, uint64(before), records)\n\t\tif errors.Is(err, ErrOvertaken) {\n\t\t\t_, after, _ := s.appender.Last(ctx, s.number)\n\t\t\tnewest, err = s.appender.Append(ctx, s.number, after, records)\n\t\t}\n\t\treturn newest, err\n"}},
		},
		{
			name: "relay log: mark not told by the broker", file: shard, suite: onPostgres("^TestAKillBetweenAppendAndMove$"), says: `is there twice|comes after`,
			changes: []change{{"if mark == 0 || known {", "if mark == 0 || known || s.sub.Mark >= 0 {"}},
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
			name: "relay: a process appends after its turn", file: "relay/inbox.go", suite: onPostgres("^TestAProcessWhoseTurnIsOverAppendsNothing$"), says: `got 2 events, and 2 acknowledged, want those`,
			changes: []change{{"return r.holdsTurn(ctx, tx, rc)", "return nil"}},
		},
		{
			name: "relay log: a publisher may take for ever", file: "relay/call.go", suite: onPostgres("^TestALogRelayWhosePublisherHangs$"), says: `gave up waiting: the others are published`,
			changes: []change{{"time.NewTimer(timeout + callGrace)", "time.NewTimer(1000*timeout + 3600*callGrace)"}},
		},
		{
			name: "relay log: calls that hang are no bound", file: "relay/call.go", suite: onPostgres("^TestALogRelayWhosePublisherHangs$"), says: `got \d+ calls that hang, want 4`,
			changes: []change{{"s.hanging.Load() >= mostHanging", "s.hanging.Load() > 100*mostHanging"}},
		},
		{
			name: "relay log: a stream that was erased is kept by others", file: "relay/into_log.go", suite: onPostgres("^TestALogIntoAnother$"), says: `of the stream: got 21 events, want the last one alone`,
			changes: []change{{"\t\terr := r.config.Log.Tombstone(ctx, tx, m.Event.Stream)\n", "\t\terr := r.config.Log.Import(ctx, tx, m)\n"}},
		},
	}
}
