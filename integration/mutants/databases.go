//go:build unix

package main

// mariaClaimMutants break what a claim rests on where it takes several statements.
func mariaClaimMutants() []mutant {
	during := func(what string) suite { return inStore("TestClaimSeesConcurrentChanges/mariadb/" + what) }
	const both = `got map\[c0:10 c1:10\], want map\[c0:10\]`
	return []mutant{
		{"MariaDB: claims are not read again once rows are locked",
			in("mariadb.takenSQL", text("h WHERE h.id IN (?) UNION ALL", "h WHERE h.id IN (?) AND FALSE UNION ALL")), during("claimed*"), both},
		{"MariaDB: a pause during the claim is missed", in("mariadb.database.record", without("paused[p.ConsumerType]")), during("paused*"),
			both},
		{"MariaDB: nothing behind locked rows is looked at", in("mariadb.look.advance", replace("l.limit *= 2", "l.limit = 0")),
			inStore("TestMariaDBClaimersDoNotStarveEachOther"), `got 0 messages`},
		{"MariaDB: conflicting transactions repeat at once", in("txn.InTx", replace("return repeatInTurn(ctx, db, fn)", "_ = repeatInTurn")),
			inStore("TestMariaDBSurfacesNoConflicts"), `got error .*1213`},
	}
}

// mariaSettleMutants do so for what is settled, recovered and fenced.
func mariaSettleMutants() []mutant {
	on := func(names string) suite { return inStore("TestStore/mariadb/" + names) }
	return []mutant{
		{"MariaDB: settles a message that left its claim", in("Lists.subtract", before("return held, …", "held = results")),
			on("settle_guards"), `settle_guard\.go:\d+: settled:`},
		{"MariaDB: settles under the claim of another owner", in("mariadb.liveSQL", text("c.owner = ?", "? <> ''")), on("settle_guards"),
			`settle_guard\.go:\d+: (settled|claims|messages):`},
		{"MariaDB: a crash is not counted", in("mariadb.recoverStatements", text("SET m.crashes = j.crashes", "SET m.crashes = m.crashes")),
			on("recover"), `recover\.go:\d+: crashes`},
		{"MariaDB: the fence does not check the claim",
			in("mariadb.database.Fence", before("for _, c := range live {…}", "held = append(held, msg.ID)")), on("transaction"),
			`fence, (release|another owner|a foreign claim)`},
		{"MariaDB: an ended transaction is committed", in("mariadb.database.Intact", text("RELEASE SAVEPOINT", "SELECT 1 AS")),
			inOutbox("TestMariaDBTransactionThatEndsEarly"), `effects: got those of attempts that add up to`},
		{"MariaDB: a group goes on in an ended transaction", in("mariadb.database.Savepoint", never("err != nil")),
			inOutbox("TestMariaDBTransactionOfAGroupThatEndsEarly"), `got effects in attempts \[1 1\]`},
		{"MariaDB: free insert ids are read from a snapshot", in("mariadb.reservedSQL", text("LOCK IN SHARE MODE", "")),
			inOutbox("TestReservedInsertIDsAreFree"), `want a duplicate`},
		{"MariaDB: a key is free once its first message is settled",
			in("mariadb.statements", text("lanes = ?", "lanes = IF(? IS NULL, '', NULL)")), lanes("mariadb", atOnce), outOfOrder},
	}
}

// sqliteMutants break what a settle rests on where one lock covers several statements.
func sqliteMutants() []mutant {
	return []mutant{
		{"SQLite: settles under the claim of another owner", in("sqlite.claimsSQL", text("AND owner = ?", "AND ? <> ''")),
			inStore("TestStore/sqlite/settle_guards"), `settle_guard\.go:\d+: (settled|claims|messages):`},
		{"SQLite: claims are not read again under the lock", in("sqlite.unchangedSQL", text("m.id NOT IN (", "-m.id NOT IN (")),
			inStore("TestClaimSeesConcurrentChanges/sqlite/claimed*"), `got map\[c0:10 c1:10\], want map\[c0:10\]`},
	}
}
