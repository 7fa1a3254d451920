//go:build unix

package main

// barMutants are caught by whole processes: by bars of integration/chaos.
func barMutants() []mutant {
	const worker, tx = "outbox/worker.go", "outbox/consume_tx.go"
	return []mutant{
		{
			name: "bar 1: delete before handler", file: worker, suite: bar("1-kills"), says: `I2: gone without having finished|I1: lost`,
			changes: deleteBeforeHandler(),
		},
		{
			name: "bar 3: removal outside the transaction", file: tx, suite: bar("3-commits"), says: `I6: effects other than one`,
			changes: []change{
				{"n, err := t.store.Remove(statement, t.tx, t.session, ids...)", "n, err := len(ids), statement.Err()"},
				{"\tt.committed = true\n", "\tif _, err := r.store.Remove(own.ctx, r.db, own.session, t.row.ID); err != nil {\n\t\treturn err\n\t}\n\tt.committed = true\n"},
			},
		},
		{
			name: "bar 4: settle without membership", file: pgSettling, suite: bar("4-paused"), says: `a stale write was accepted`,
			changes: []change{{"\n  JOIN held h ON h.cid = r.cid AND h.mid = r.mid`", "`"}},
		},
		{
			name: "bar 5: crash not counted", file: pgLease, suite: bar("5-killers"), says: `got a death of a worker beyond the 3`,
			changes: crashNotCounted(),
		},
		{
			name: "bar 7: release counts an attempt", file: pgSettling, suite: bar("7-sigterm"), says: `messages with attempts or crashes: got \d+, want none`,
			changes: releaseCounts(),
		},
		{
			name: "bar 8: renewal switched off", file: "outbox/keeper.go", suite: bar("8-pool-used"), says: `with a pool of 11: got \d+ consumers cancelled and \d+ log lines, want none`,
			changes: []change{{"held, err := r.store.Extend(ctx, db, r.owner, r.config.LeaseDuration)", "var held []int64\n\tfor id := range before {\n\t\theld = append(held, id)\n\t}"}},
		},
	}
}
