//go:build unix

package main

// barMutants are found by whole processes, some of which are killed: by bars of integration/chaos. They
// show that the judge of those bars finds a worker that is broken.
func barMutants() []mutant {
	return []mutant{
		{"bar 1: removed before the consumer has run", removedFirst(), bar("1-kills"), `I2: gone without having finished|I1: lost`},
		{"bar 1 on MariaDB: claims are not read again once rows are locked",
			both(in("mariadb.takenSQL", text("h WHERE h.id IN (?) UNION ALL", "h WHERE h.id IN (?) AND FALSE UNION ALL")),
				in("mariadb.look.advance", always("!held[c.ID]"))), bar("1-kills-mariadb"), `I3: `},
		{
			"bar 3: removed in another transaction",
			both(in("consumerTx.commit", replace("t.transactor.store.Claims.Remove(…)", "len(ids), statement.Err()")),
				in(
					"transactor.tryInTx",
					before(
						"t.committed = true",
						"if _, err := tr.store.Claims.Remove(own.ctx, tr.db, own.session, t.row.ID); err != nil { return err }",
					),
				)),
			bar("3-commits"),
			`I6: effects other than one`,
		},
		{"bar 4: settles a message that left its claim", in("postgres.resultsSQL", text("JOIN held h ON h.cid = r.cid AND h.mid = r.mid", "")),
			bar("4-paused"), `a stale write was accepted`},
		{"bar 5: a crash is not counted", crashUncounted(), bar("5-killers"), `got a death of a worker beyond the 3`},
		{"bar 7: a release counts as an attempt", releaseAttempted(), bar("7-sigterm"),
			`messages with attempts or crashes: got \d+, want none`},
		{"bar 8: leases are not renewed", in(
			"renewer.renew",
			replace(
				"rn.store.Claims.Extend(…)",
				"slices.Collect(func(yield func(int64) bool) { for id := range before { yield(id) } }), error(nil)",
			),
		),
			bar("8-pool-used"), `with a pool of 11: got \d+ consumers cancelled and \d+ log lines, want none`},
		{"bar 14: deduplicated in another transaction", receivedApart(), bar("14-kills"), `I1: lost`},
	}
}
