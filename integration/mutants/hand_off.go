//go:build unix

package main

// handOffMutants break what keeps a message that its producer's transaction claims from being lost, or
// run too early, twice or out of turn.
func handOffMutants() []mutant {
	unit := func(test string) suite { return tests("internal/engine", test) }
	leaves := func(what, mention, name string) mutant {
		return mutant{"hand-off: " + what, in("dispatcher.admitsLocked", without(mention)),
			unit("TestAdmissionLeavesToClaimsWhatTheyDecide/" + name), `admitted: got 1, want none`}
	}
	return []mutant{
		leaves("of a consumer with a limit", "c.limiter", "a_limit"),
		leaves("of a consumer with an order", "access.Keyed", "an_order"),
		leaves("of a consumer whose message has crashed", "c.suspects", "a_crashed_one"),
		{"hand-off: past a backlog", in("dispatcher.admitsLocked", never("maxOvertaking")),
			unit("TestAdmissionLeavesToClaimsWhatTheyDecide/a_backlog"), `admitted: got 1, want none`},
		{"hand-off: despite a savepoint that was rolled back", in("postgres.handOffOneSQL",
			text("FROM {messages} m WHERE m.id = ?::bigint AND ", "FROM (SELECT ?::bigint AS id, pg_current_xact_id()::xid AS xmin, "+
				"{now} AS available_after, '' AS consumer_type) m WHERE ")),
			inOutbox("TestHandOffGoesOnAfterATransactionThatFailed"), `runs while it is in the claims \[\], want one`},
		{"hand-off: of messages of another transaction", in("postgres.handedOffSQL", text("m.xmin = pg_current_xact_id()::xid AND ", "")),
			inOutbox("TestHandOffGoesOnAfterATransactionThatFailed"), `claimed by another transaction than its own`},
		{"hand-off: by ids of another table", in("postgres.originSQL", text("'{messages}'::regclass::oid", "0")),
			inOutbox("TestHandOffUnderAnotherPath"), `claims of the tenant, want|beyond the \d+ of their sequence`},
		{"hand-off: of a late commit", in("reservation.handOver", without("ho.config.LeaseDuration")),
			inOutbox("TestHandOffOfALateCommit"), `ran under the claim of its transaction|crashes`},
		{"hand-off: past a stop", in("reservation.handOver", without("ho.ended")),
			inOutbox("TestHandOffOfACommitPastTheStop"), `gave up waiting|1 crashes`},
		{"hand-off: a lost commit is looked for once", in("inFlightClaims.mayBeUnknown", without("f.doubtful")),
			inOutbox("TestHandOffOfACommitThatTheServerIsStillAt"), `1 crashes`},
		{"hand-off: kept from processes that are killed", in("postgres.handOffOneSQL", text("ARRAY[m.id]", "ARRAY[-m.id]")),
			bar("17-hand-off"), `violations|gave up`},
	}
}
