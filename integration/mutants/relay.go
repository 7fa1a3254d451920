//go:build unix

package main

// perRelay runs one database's part of a test of relays.
func perRelay(names string) suite { return inRelay(names + "/postgres") }

// publishMutants lose, double or misdirect what is published, or count what is not the message's fault.
func publishMutants() []mutant {
	unit := func(names string) suite { return tests("relay", names) }
	return []mutant{
		{"relay: settled before the acknowledgement",
			in("publishing.call", replace("results := p.pub.Publish(calling, records)", "go p.pub.Publish(calling, records); var results []error")),
			unit("TestAMessageIsDoneOnceTheBrokerHasIt"), `got it done with <nil> before the broker had it`},
		{"relay: one error fails all records",
			in("publishing.publishNext", replace("fail(places[i], err)", "for j := range batch { fail(j, err) }; _ = places[i]")),
			unit("TestEachAnswerIsForItsRecord"), `message 0: got \w+, want done`},
		{"relay: a key goes on behind a failure", in("publishing.publishNext", never("taken[m.OrderingKey]")),
			inRelay("TestOrderAcrossAFailure"), `got \{"n":0\}\{"n":2\}`},
		{"relay: an outage counts attempts", in("publishing.outcome", replace("p.unanswered(record, err, alone)", "err")),
			perRelay("TestAnOutageWritesNothing/unavailable"), `got \d+ that wait, want 2000`},
		{"relay: an absent destination holds up others", in("publishing.unanswered", never("p.missing.silentAll")),
			unit("TestTheCircuitOpensOnceNoDestinationAnswers"), `got it open, though orders are answered`},
		{"relay: one silent key is its whole destination", in("missing.unanswered", replace("at != part", "true")),
			unit("TestAnUnansweredKeyAloneInItsBatchesDelaysNoOthers"), `circuit after batch a+: got open true`},
	}
}

// receiveMutants lose or double what arrives from another service, or cannot be taken.
func receiveMutants() []mutant {
	return []mutant{
		{"relay: acknowledged before the commit", in("acceptor.accept", never("cmp.Or(err, written)")),
			perRelay("TestRecordsAreAcknowledgedOnlyAfterTheCommit"), `got [1-9]\d* acknowledged and 0 rows, want none`},
		{"relay: deduplicated in another transaction",
			in("acceptor.writeTogether", replace("added, err := a.store.Inbox.Receive(ctx, tx, a.receiver.name, hashes)",
				"var added map[string]bool; err := txn.InTx(ctx, a.db, func(tx bun.Tx) (err error) { "+
					"added, err = a.store.Inbox.Receive(ctx, tx, a.receiver.name, hashes); return err })")),
			perRelay("TestRecordsAreAcknowledgedOnlyAfterTheCommit"), `got \d+ acknowledged and [1-9]\d* rows, want none`},
		{
			"relay: not deduplicated",
			in("acceptor.fresh", replace("!one.isNew(added)", "!one.isNew(added) && false")),
			perRelay("TestRepeatedDeliveriesHaveOneEffect"),
			`effects other than one: got [1-9]`,
		},
		{"relay: receivers share an inbox", in("acceptor.writeTogether", argument("a.store.Inbox.Receive", 2, `""`)),
			perRelay("TestEachReceiverHasItsOwnInbox"), `got 1 messages, want one for each name`},
		{"relay: the inbox key ignores the consumers", in("arrival.accept", omit("cloudevents.JoinNames(consumers)")), perRelay("TestIDs"),
			`messages: got map\[`},
		{"relay: an older instance drops what a newer one accepts", in("typeTable.mayIgnore", never("slices.Contains")),
			perRelay("TestAnOlderInstanceLeavesANewTypeToNewerOnes"), `want the batch given back`},
		{"inbox: a record that hangs goes back for ever", in("acceptor.readOne", replace("!a.worker.state.readHung(record)", "true")),
			inRelay("TestARecordAtWhichMapHangsIsParked"), `want the three others accepted`},
		{"inbox: a parked record is parked each time",
			in("arrival.park", replace("cloudevents.Hash(parts...)", "cloudevents.Hash(append(parts, time.Now().String())...)")),
			perRelay("TestUnacceptableRecordsAreParked"), `poisoned: got \d+, want 18`},
		{
			"relay: retention forgets other receivers",
			in("InboxStore.Forget", text("receiver = ? AND received_at", "receiver <> ? AND received_at")),
			inStore("TestStore/postgres/inbox"),
			`left of b`,
		},
	}
}

// moveMutants have a message run twice, or for others, while its consumer moves to another service.
func moveMutants() []mutant {
	stored := func(database string) suite { return inStore("TestStore/" + database + "/rename") }
	return []mutant{
		{"move: a forwarded message keeps its former name", in("enqueuer.rename", never("to.settings.Forwards")),
			perRelay("TestMessagesThatKeepTheFormerName"), `names while they run: got`},
		{"move: renamed without asking for the claim", in("ClaimStore.fenceFormer", replace("return nil, errNotHeld", "return rows, nil")),
			stored("postgres"), `renamed by another owner`},
		{"move: an insert id is pending twice", in("ClaimStore.dropKeys", drop("delete")), stored("sqlite"), `rename: got error`},
	}
}

// logRelayMutants lose, double or disorder what leaves the event log, or enters it.
func logRelayMutants() []mutant {
	return []mutant{
		{"log forwarder: the cursor moves before the append",
			in("relay.shard.step", after("revision := s.sub.Mark", "if _, err := s.move(ctx, b.to, revision); err != nil { return false, err }")),
			perRelay("TestAnAppendThatFailsLeavesNoGap"), `\d+ of 200 events are there`},
		{"log forwarder: appends without a fence", notFenced(), perRelay("TestAZombieIsFenced"), `is there twice|comes after`},
		{"log forwarder: ignores the broker's last record", in("relay.shard.locate", replace("s.sub.Mark == int64(revision)", "s.sub.Mark >= 0")),
			perRelay("TestAKillBetweenAppendAndMove"), `is there twice|comes after`},
		{"log forwarder: continues after another's record", in("shard.last", replace("!s.wrote(id)", "!s.wrote(id) && false")),
			perRelay("TestANewNameBesideTheRecordsOfAnother"), `got error <nil>, want that the records`},
		{"log forwarder: a leased shard is free",
			in("leaseSubscription", text("AND (owner = ?0 OR leased_until IS NULL", "AND (1 = 1 OR owner = ?0 OR leased_until IS NULL")),
			inStore("TestStore/postgres/leases_of_subscriptions"), `by another`},
		{"log forwarder: the cursor passes a failed event", in("shard.publishAll", replace("return i, errorlog.Sound(err)", "_ = i")),
			perRelay("TestAPublisherThatIsNoAppender"), `got \d+ events, want 100`},
		{"into log: appends after its turn", in("acceptor.writeTogether", replace("a.worker.lease.holds(ctx, tx)", "nil")),
			perRelay("TestAProcessWhoseTurnIsOverAppendsNothing"), `got 2 events, and 2 acknowledged, want those`},
		{"into log: an erased stream is kept",
			in("acceptor.appendToLog", replace("a.log.Tombstone(ctx, tx, m.Event.Stream)", "logaccess.Import(ctx, a.log, tx, m)")),
			perRelay("TestALogIntoAnother"), `of the stream: got 21 events, want the last one alone`},
	}
}

// notFenced appends behind whatever the broker has, if its record is not the expected one.
func notFenced() mistake {
	const appended = "s.appender.Append(ctx, s.number, uint64(before), records)"
	return in("shard.appendAll", replace("return "+appended, "revision, err := "+appended+"; if errors.Is(err, broker.ErrSequenceConflict) { "+
		"_, _, last, _ := s.appender.Last(ctx, s.number); "+
		"revision, err = s.appender.Append(ctx, s.number, last, records) }; return revision, err"))
}
