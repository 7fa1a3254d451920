//go:build unix

package main

// eventLogMutants break the order of the event log, and the checkpoints of those
// who read it.
func eventLogMutants() []mutant {
	const (
		sql   = "internal/store/postgres/events.go"
		batch = "eventlog/projection/batch.go"
	)
	tests := func(pattern string) suite { return suite{pkg: "./integration/eventlog", tests: pattern} }
	order, beside := tests("^TestOrderOfManyWriters$"), tests("^TestWhatIsNumberedBesideAPageIsNotSkipped$")
	return []mutant{
		{
			name: "cursor on the insert sequence", file: "internal/store/postgres/postgres.go", suite: order, says: "want the next|got it 0 times",
			changes: []change{
				{`Place: "position"`, `Place: "sequence"`},
				{`"(SELECT h.position FROM {head} h WHERE h.id = 1)"`, `"(SELECT COALESCE(MAX(h.sequence), 0) FROM {events} h)"`},
			},
		},
		{
			name: "numbering in the same statement as the lock", file: sql, suite: order, says: "were numbered meanwhile|duplicate key",
			changes: []change{
				{"const numberLockSQL = `SELECT position FROM {head} WHERE id = 1 FOR UPDATE SKIP LOCKED`", "const numberLockSQL = `SELECT 0 AS position`"},
				{"WITH todo AS MATERIALIZED (", "WITH lock AS MATERIALIZED (SELECT position FROM {head} WHERE id = 1 FOR UPDATE),\ntodo AS MATERIALIZED ("},
				{"SET position = ? + p.n FROM", "SET position = ? + (SELECT position FROM lock) + p.n FROM"},
			},
		},
		{
			name: "numbering from a guessed bound", file: sql, suite: tests("^TestAnIdleWriterDelaysOnlyItself$"), says: "after the commit: got position",
			changes: []change{{"WHERE position IS NULL ORDER BY sequence LIMIT ?", "WHERE position IS NULL AND sequence >= (SELECT COALESCE(MAX(n.sequence), 0) - 1 FROM {events} n WHERE n.position IS NOT NULL) ORDER BY sequence LIMIT ?"}},
		},
		{
			name: "head read after the page", file: batch, suite: beside, says: "want the fold of the log",
			changes: []change{
				{"	head, err := b.runner.store.Head(ctx, b.tx)\n	if err != nil {\n		return false, fmt.Errorf(\"read head: %w\", err)\n	}\n", ""},
				{"UpTo: min(head, b.sub.Position+b.window.Load())", "UpTo: b.sub.Position + b.window.Load()"},
				{"	full := len(rows) == limit\n", "	head, err := b.runner.store.Head(ctx, b.tx)\n	if err != nil {\n		return false, err\n	}\n	page.UpTo = min(head, page.UpTo)\n	full := len(rows) == limit\n"},
			},
		},
		{
			name: "checkpoint outside the transaction", file: batch, suite: tests("^TestTheCheckpointMovesWithTheWrites$"), says: "want each of 20 once|want the fold of the log",
			changes: []change{
				{"	applied := 0\n	err = txn.RunOwn(", "	applied := 0\n	var b *batch\n	err = txn.RunOwn("},
				{"		b := &batch{shard: s, runner: r, tx: tx}\n", "		b = &batch{shard: s, runner: r, tx: tx}\n"},
				{"	moved, err := b.runner.store.MoveSubscription(ctx, b.tx, sub, b.to)\n", "	moved, err := true, error(nil)\n"},
				{"		return false, fmt.Errorf(\"projection %q: %w\", s.Name, err)\n	}\n", "		return false, fmt.Errorf(\"projection %q: %w\", s.Name, err)\n	}\n	if b.sub.Name != \"\" && b.to > b.sub.Position {\n		err := txn.InTx(ctx, r.db, func(tx bun.Tx) error {\n			_, err := r.store.MoveSubscription(ctx, tx, b.sub, b.to)\n			return err\n		})\n		if err != nil {\n			return false, err\n		}\n	}\n"},
			},
		},
		{
			name: "streams locked in the order given", file: "eventlog/append.go", suite: tests("^TestSeveralStreamsDoNotDeadlock$"), says: "append to two streams",
			changes: []change{
				{"	slices.SortFunc(a.order, func(x, y int) int { return cmp.Compare(a.writes[x].Stream, a.writes[y].Stream) })\n", ""},
				{"	\"cmp\"\n", ""},
			},
		},
	}
}
