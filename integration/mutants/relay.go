//go:build unix

package main

// onPostgres runs one database's part of a test of relays.
func onPostgres(tests string) suite {
	return suite{pkg: "./integration/relay", tests: tests + "/^postgres$"}
}

// receiveMutants lose or double what arrives from another service.
func receiveMutants() []mutant {
	const inbox = "relay/inbox.go"
	return []mutant{
		{
			name: "relay: ack before commit", file: inbox, suite: onPostgres("^TestNothingIsAcknowledgedThatIsNotCommitted$"), says: `got [1-9]\d* acknowledged and 0 rows, want none`,
			changes: ackBeforeCommit(),
		},
		{
			name: "relay: dedupe outside the transaction", file: inbox, suite: onPostgres("^TestNothingIsAcknowledgedThatIsNotCommitted$"), says: `got \d+ acknowledged and [1-9]\d* rows, want none`,
			changes: dedupedApart(),
		},
		{
			name: "relay: no dedupe", file: inbox, suite: onPostgres("^TestOneEffectEach$"), says: `effects other than one: got [1-9]`,
			changes: notDeduped(),
		},
		{
			name: "relay: key without receiver", file: inbox, suite: onPostgres("^TestEachReceiverHasItsOwnInbox$"), says: `got 1 messages, want one for each name`,
			changes: []change{{"r.store.Receive(ctx, tx, rc.name, hashes)", "r.store.Receive(ctx, tx, \"\", hashes)"}},
		},
		{
			name: "relay: an older instance drops what a newer one accepts", file: "relay/accepted.go", suite: onPostgres("^TestAnOlderInstanceLeavesANewTypeToNewerOnes$"), says: `want the batch given back`,
			changes: []change{{"if slices.Contains(unknown, eventType) {", "if len(unknown) < 0 {"}},
		},
		{
			name: "relay: what is received again is live", file: "relay/inbound.go", suite: onPostgres("^TestAReplayFromTheBroker$"), says: `replay: got \[mail`,
			changes: []change{{"m.Replay = r.replay", "m.Replay = false"}},
		},
		{
			name: "relay: the mode of a message is not stored", file: "outbox/producer.go", suite: onPostgres("^TestAReplayIntoTheLog$"), says: `got \[mail`,
			changes: []change{{"Replay: m.Replay, ", ""}},
		},
		{
			name: "relay: fetching goes on however much waits", file: "relay/backlog.go", suite: onPostgres("^TestBackPressure$"), says: `waiting: got 1000, want a little more than 200`,
			changes: []change{{"return waiting, err\n", "return 0 * waiting, err\n"}},
		},
		{
			name: "relay: retention forgets what others remember", file: "internal/store/inbox.go", suite: suite{pkg: inStore, tests: underStore + "^inbox$"}, says: `left of b`,
			changes: []change{{`Where: "receiver = ? AND received_at < "`, `Where: "receiver <> ? AND received_at < "`}},
		},
	}
}

// parkMutants lose, or double, what cannot be taken, or what comes with it.
func parkMutants() []mutant {
	const inbox = "relay/inbox.go"
	odd := func(tests string) suite { return suite{pkg: "./integration/relay", tests: tests} }
	return []mutant{
		{
			name: "relay: a payload on which the application panics holds up the others", file: inbox, suite: onPostgres("^TestAPayloadOnWhichTheApplicationPanics$"), says: `gave up waiting: all is acknowledged`,
			changes: []change{{"if value := recover(); value != nil {", "if value := any(nil); value != nil {"}},
		},
		{
			name: "relay: a subscriber may take for ever to return", file: "relay/subscribe.go", suite: odd("^TestFunctionsThatHang$/^a_subscriber$"), says: `deadlock|has not returned`,
			changes: []change{{"if s.inHand.Load() > 0 {", "if s.inHand.Load() >= 0 {"}},
		},
		{
			name: "relay: behind a record that stays nothing is taken over", file: inbox, suite: odd("^TestARecordThatCannotBeStored$"), says: `want those of the others`,
			changes: []change{{"len(a.record.Body), err))\n\t\treturn nil", "len(a.record.Body), err))\n\t\treturn err"}},
		},
		{
			name: "relay: behind a record that fails all others are tried at once", file: inbox, suite: odd("^TestRecordsThatAllFailTakeFewWrites$"), says: `writes: got [1-9]\d{3}, want at most 290`,
			changes: []change{{"size, suspects = 1, 0", "size, suspects = len(arrivals), 0"}},
		},
		{
			name: "relay: each record that fails is parked by itself", file: inbox, suite: odd("^TestRecordsThatAllFailTakeFewWrites$"), says: `writes: got 5\d\d, want at most 290`,
			changes: []change{{"parkAtOnce = 16", "parkAtOnce = 1"}},
		},
		{
			name: "relay: a packet that is too large is sent", file: "internal/store/mariadb/insert.go", suite: odd("^TestARecordThatCannotBeStored$"), says: `want it kept, and the reason`,
			changes: []change{{"if size > packet {", "if size > packet<<10 {"}},
		},
		{
			name: "relay: a parked record is parked each time", file: "relay/inbound.go", suite: onPostgres("^TestWhatCannotBeTakenIsParked$"), says: `poisoned: got \d+, want 18`,
			changes: []change{{"hashOf(parts...)\n\treturn a", "hashOf(append(parts, time.Now().String())...)\n\treturn a"}},
		},
	}
}

// healthMutants keep quiet about brokers and databases that are away, or say too much.
func healthMutants() []mutant {
	const away = "relay/away.go"
	inRelay := func(tests string) suite { return suite{pkg: "./integration/relay", tests: tests} }
	return []mutant{
		{
			name: "relay: a destination that is away holds up others", file: "relay/publish.go", suite: suite{pkg: "./relay", tests: "^TestTheGateClosesOnceNoDestinationAnswers$"}, says: `got it closed, though orders are answered`,
			changes: []change{{"if others || !p.missing.silentAll(destinations) {", "if p.missing.silentAll(destinations); others {"}},
		},
		{
			name: "relay: a broker that is away is a line for each attempt", file: away, suite: inRelay("^TestABrokerThatIsAwayIsShown$"), says: `log: got 6 of`,
			changes: []change{{"case err != nil && began:", "case err != nil:"}},
		},
		{
			name: "relay: a runner whose database is away is ready", file: away, suite: inRelay("^TestHealthOfARunner$"), says: `want it not ready, and the reason`,
			changes: []change{{"h.Ready = h.Err == nil && r.serving.Load()", "h.Ready = r.serving.Load()"}},
		},
		{
			name: "relay: a runner without records does not notice that its database is back", file: "relay/runner.go", suite: inRelay("^TestHealthOfARunner$"), says: `want it ready soon`,
			changes: []change{{"wait = min(every, mostRetry)", "wait = every"}},
		},
		{
			name: "relay: a server that is silent is there", file: "relay/nats/pull.go", suite: suite{pkg: "./integration/relay/nats", tests: "^TestConformance$/^who_subscribes_is_told_that_the_broker_hangs"}, says: `was not told within .* that the broker is away`,
			changes: []change{{"p.away.Note(p.whySilent())", "_ = p.whySilent()"}},
		},
	}
}

// recipientMutants mistake for whom a record is.
func recipientMutants() []mutant {
	return []mutant{
		{
			name: "relay: what waits under its own former name is for nobody", file: "relay/outbound.go", suite: onPostgres("^TestWhoIsRenamed$"), says: `1 parked, want 3, 2 and none`,
			changes: []change{{"if slices.Contains(p.consumers, m.StoredConsumer) &&", "if (m.StoredConsumer != \"\" || slices.Contains(p.consumers, \"\")) &&"}},
		},
		{
			name: "relay: key without the consumers it is for", file: "relay/inbound.go", suite: onPostgres("^TestIDs$"), says: `messages: got map\[`,
			changes: []change{{`e.Attributes["id"], joinNames(consumers))`, `e.Attributes["id"])`}},
		},
		{
			name: "relay: a record for several is remembered as one", file: "relay/inbound.go", suite: onPostgres("^TestAConsumerIsToldOnceWhoeverElseIs$"), says: `got map\[bill:[2-9]`,
			changes: []change{{"if len(m.Only) > 1 {", "if len(m.Only) > 1000 {"}},
		},
		{
			name: "relay: an event is appended for each consumer that it is for", file: "relay/inbound.go", suite: onPostgres("^TestAnEventIsAppendedOnceWhoeverItIsFor$"), says: `got \[1 1`,
			changes: []change{{"m, hashFor(m.Only)", "m, hashFor([]string{e.Attributes[consumersAttribute]})"}},
		},
	}
}

// adapterMutants believe what a payload, a sender or a URL says.
func adapterMutants() []mutant {
	return []mutant{
		{
			name: "relay: a subject that has the server end the connection is sent", file: "relay/nats/wire.go", suite: suite{pkg: "./integration/relay/nats", tests: "^TestSubjectsThatNoStreamCanHaveAreRefused$"}, says: `maximum control line exceeded`,
			changes: []change{{"if len(subject)+len(reply) > maxControlLine-lineRest {", "if len(subject)+len(reply) > 1000*maxControlLine {"}},
		},
		{
			name: "relay: a subscriber asks the server's own domain", file: "relay/nats/pull.go", suite: suite{pkg: "./integration/relay/nats", tests: "^TestConformanceBeyondALeafNode$/^a_record_comes_as_it_was_sent$"}, says: `got 0 deliveries`,
			changes: []change{{"apiPrefix(s.config.Domain) +", "apiPrefix(\"\") +"}},
		},
		{
			name: "relay: a complaint of NATS is told for ever", file: "relay/nats/complaints.go", suite: suite{pkg: "./integration/relay/nats", tests: "^TestComplaintsOfBefore$"}, says: `want it left out`,
			changes: []change{{"time.Since(c.came) < complaintAge", "true"}},
		},
		{
			name: "relay: that answers may not be heard is told once", file: "relay/nats/complaints.go", suite: suite{pkg: "./integration/relay/nats", tests: "^TestWhoMayNotHearAnswers$"}, says: `the third time`,
			changes: []change{{"!fresh && !deaf &&", "!fresh && (deaf || !deaf) &&"}},
		},
		{
			name: "relay: what a URL of RabbitMQ takes for a port is told", file: "relay/rabbitmq/link.go", suite: suite{pkg: "./relay/rabbitmq", tests: "^TestURLsAreCheckedWithoutTellingThem$"}, says: `no password`,
			changes: []change{{"err = errUnreadable", "err = parse.Err"}},
		},
		{
			name: "relay: of Kafka's records those are taken that the sender has taken back", file: "relay/kafka/subscriber.go", suite: suite{pkg: "./integration/relay/kafka", tests: "^TestWhatASenderHasTakenBackIsNotBrought$"}, says: `"taken back"`,
			changes: []change{{", kgo.FetchIsolationLevel(kgo.ReadCommitted())", ""}},
		},
	}
}

// publishMutants do so with what is published.
func publishMutants() []mutant {
	const publishing = "relay/publish.go"
	unit := func(tests string) suite { return suite{pkg: "./relay", tests: tests} }
	return []mutant{
		{
			name: "relay: settle before the ack", file: publishing, suite: unit("^TestAMessageIsDoneOnceTheBrokerHasIt$"), says: `got it done with <nil> before the broker had it`,
			changes: []change{{"\tresults := p.pub.Publish(calling, records)\n", "\tgo p.pub.Publish(calling, records)\n\tvar results []error\n"}},
		},
		{
			name: "relay: one error for all records", file: publishing, suite: unit("^TestEachAnswerIsForItsRecord$"), says: `message 0: got \w+, want done`,
			changes: oneErrorForAll(),
		},
		{
			name: "relay: an outage counts attempts", file: publishing, suite: onPostgres("^TestAnOutageWritesNothing$/^unavailable$"), says: `got \d+ that wait, want 2000`,
			changes: outageCounts(),
		},
		{
			name: "relay: every message warns of its destination", file: "relay/missing.go", suite: unit("^TestADestinationThatIsMissingIsWarnedOf$"), says: `got [1-9]\d\d warnings, want 6`,
			changes: []change{{"if gone == nil || now.Sub(gone.warned) < warnEvery || now.Sub(m.warned) < warnApart {", "if gone == nil {"}},
		},
		{
			name: "relay: a refused probe keeps the gate closed", file: publishing, suite: suite{pkg: "./integration/relay", tests: "^TestAProbeThatIsNotTakenOpensTheGate$/^refused$"}, says: `the gate is closed`,
			changes: []change{{"if probes && answered && ctx.Err() == nil {", "if probes && !answered {"}},
		},
		{
			name: "relay: a publisher that is given up costs an attempt", file: publishing, suite: suite{pkg: "./integration/relay", tests: "^TestAPublisherThatIgnoresItsTimeout$"}, says: `got 0 that wait and 3 poisoned`,
			changes: []change{{"_ = p.gate.Close(errTimeout)", "_ = 0"}},
		},
		{
			name: "relay: a publisher is not asked to tell that its broker is back", file: publishing, suite: unit("^TestTheGateOpensOnceTheBrokerIsBack$"), says: `nobody asked for it`,
			changes: []change{{"ok && p.gate != nil {", "ok && p.gate != nil && p.timeout < 0 {"}},
		},
		{
			name: "relay: an answer at once is news, too", file: "relay/internal/adapter/reconnect.go", suite: suite{pkg: "./relay/internal/adapter", tests: "^TestABrokerThatAnswersIsNoNews$"}, says: `got it told 1 times`,
			changes: []change{{"return away || time.Since(asked) >= slow", "return away || time.Since(asked) >= 0"}},
		},
		{
			name: "relay: who may not ask for streams takes a missing one for an election", file: "relay/nats/publisher.go", suite: suite{pkg: "./integration/relay/nats", tests: "^TestWhoMayNotAskForStreams$"}, says: `want ErrNoDestination`,
			changes: []change{{"case ctx.Err() != nil && errors.Is(said,", "case ctx.Err() == nil && errors.Is(said,"}},
		},
		{
			name: "relay: a stop closes the gate", file: publishing, suite: suite{pkg: "./integration/relay", tests: "^TestAStopIsNoOutage$"}, says: `gate: got it closed for`,
			changes: []change{{"case cause != nil && !errors.Is(cause, bus.ErrTimeout):", "case cause == errTimeout && false:"}},
		},
		{
			name: "relay: what waits under an alias is for all", file: "relay/outbound.go", suite: unit("^TestIDsForBrokers$"), says: `got 2 ids, want 6`,
			changes: []change{{"return []string{m.StoredConsumer}", "return p.consumers"}},
		},
		{
			name: "relay: a run after a crash leaves the trace", file: "otel/consume.go", suite: suite{pkg: "./integration/otel", tests: "^TestParentOfARun$"}, says: `child of the creation: got false, want true`,
			changes: []change{{"return m.Attempt == 1 && m.AvailableAt", "return m.Attempt == 1 && m.Crashes == 0 && m.AvailableAt"}},
		},
		{
			name: "relay: the trace ends at the broker", file: "otel/consume.go", suite: onPostgres("^TestOneTraceOverBothServices$/^binary$"), says: `got parent .* want`,
			changes: []change{{"\t\tm = t.forwarded(ctx, m)\n", ""}},
		},
	}
}

// moveMutants have a message run twice, or for others, while its consumer moves to another service.
func moveMutants() []mutant {
	const forward, rename = "outbox/forward.go", "internal/store/rename.go"
	stored := func(db string) suite { return suite{pkg: inStore, tests: "^TestStore$/^" + db + "$/^rename$"} }
	return []mutant{
		{
			name: "move: what is forwarded keeps its former name", file: forward, suite: onPostgres("^TestWhatIsForwardedIsNotConsumedHere$"), says: `the old instance: got it to run`,
			changes: []change{{"to.Forwards() && to.Name() !=", "to.Forwards() && to.Name() == \"\" && to.Name() !="}},
		},
		{
			name: "move: what keeps its name is forwarded all the same", file: forward, suite: onPostgres("^TestWhatIsLockedIsForwardedLater$"), says: `got 5 published`,
			changes: []change{{"return len(rows) - len(renamed), nil", "return 0, nil"}},
		},
		{
			name: "move: what could not be renamed is forwarded all the same", file: "outbox/claim.go", suite: suite{pkg: "./integration/relay", tests: "^TestWhatCannotBeRenamedIsNotForwarded$/^sqlite$"}, says: `got [23]\d published`,
			changes: []change{{"stay, err := r.rename(ctx, c)\n", "stay, err := r.rename(ctx, c)\n\tif err != nil {\n\t\tstay, err = 0, nil\n\t}\n"}},
		},
		{
			name: "move: every alias is renamed", file: forward, suite: onPostgres("^TestWhoKeepsTheFormerName$"), says: `names while they run: got \[charge-card make-bill`,
			changes: []change{{"to.Forwards() && to.Name() !=", "to.Name() !="}},
		},
		{
			name: "move: keys in order are renamed", file: forward, suite: onPostgres("^TestWhoKeepsTheFormerName$"), says: `names while they run: got \[bill to-charge`,
			changes: []change{{"row.Lane != 0 && to.PerKey() == 0;", "row.Lane != 0 && to.PerKey() < 0;"}},
		},
		{
			name: "move: nobody remembers the former name", file: "internal/store/dialect/event.go", suite: onPostgres("^TestWhatIsForwardedIsNotConsumedHere$"), says: `each for the consumer of its own`,
			changes: []change{{"to.StoredConsumer = name\n", "_ = name\n"}},
		},
		{
			name: "move: the last former name counts", file: "internal/store/dialect/event.go", suite: stored("sqlite"), says: `produced for`,
			changes: []change{{"; !before {\n\t\tall[FormerHeader]", "; true || before {\n\t\tall[FormerHeader]"}},
		},
		{
			name: "move: renamed without asking for the claim", file: rename, suite: stored("postgres"), says: `renamed by somebody else`,
			changes: []change{{"\tif len(ids) == 0 {\n\t\treturn nil, errNotHeld\n\t}\n", "\tfor _, row := range rows {\n\t\tids = append(ids, row.ID)\n\t}\n"}},
		},
		{
			name: "move: an insert id is pending twice", file: rename, suite: stored("sqlite"), says: `rename: got error`,
			changes: []change{{"delete(free, row.key()) // two former names may have it", "_ = free"}},
		},
		{
			name: "move: an insert id is not looked for", file: rename, suite: stored("postgres"), says: `rename: got error`,
			changes: []change{{"if row.InsertID != \"\" && !free[row.key()] {", "if row.InsertID != \"\" && len(free) < 0 {"}},
		},
		{
			name: "move: headers are those of another message", file: rename, suite: stored("mariadb"), says: `headers: got|as the row is`,
			changes: []change{{"args = append(args, row.ID, headers[row.ID])", "args = append(args, row.ID, headers[part[0].ID])"}},
		},
	}
}

// wireMutants write events as the SDK of CloudEvents does not read them.
func wireMutants() []mutant {
	against := func(target string) suite {
		return suite{pkg: "./integration/relay/sdkevents", tests: "^" + target + "$"}
	}
	return []mutant{
		{
			name: "relay: NATS's attributes are not percent-encoded", file: "relay/nats/wire.go", suite: against("FuzzNATS"), says: `is not percent-encoded|the SDK: got`,
			changes: []change{{"set(attributePrefix+encodeName(name), encode(value))", "set(attributePrefix+encodeName(name), value)"}},
		},
		{
			name: "relay: Kafka's attributes have the prefix of HTTP", file: "relay/kafka/wire.go", suite: against("FuzzKafka"), says: `the SDK: got`,
			changes: []change{{"Attributes: []string{\"ce_\"}", "Attributes: []string{\"ce-\"}"}},
		},
		{
			name: "relay: text in an event is base64", file: "internal/cloudevents/event.go", suite: against("FuzzOurEventsAreReadBySDK"), says: `the SDK: got data`,
			changes: []change{{"json.Marshal(string(e.Data))", "json.Marshal(base64.StdEncoding.EncodeToString(e.Data))"}},
		},
	}
}

// relayBarMutants are caught by whole processes, some of which are killed, on both sides of a
// broker.
func relayBarMutants() []mutant {
	const publishing, inbox, lost = "relay/publish.go", "relay/inbox.go", `I1: lost`
	return []mutant{
		{
			name: "bar 14: settle before the ack", file: publishing, suite: bar("14-kills"), says: lost + `|I2: gone without having finished`,
			changes: settledBeforeAck(),
		},
		{
			name: "bar 14: ack before commit", file: "relay/nats/subscriber.go", suite: bar("14-kills"), says: lost,
			changes: []change{{"\terr := fn(ctx, records)\n\tclose(returned)\n", "\ts.tell(msgs, \"+ACK\")\n\terr := fn(ctx, records)\n\tclose(returned)\n"}},
		},
		{
			name: "bar 14: dedupe outside the transaction", file: inbox, suite: bar("14-kills"), says: lost,
			changes: dedupedApart(),
		},
		{
			name: "bar 14: no dedupe", file: inbox, suite: bar("14-kills"), says: `I6: effects other than one`,
			changes: notDeduped(),
		},
		{
			name: "bar 14: what cannot be committed is acknowledged", file: inbox, suite: bar("14-inbox"), says: `acknowledged while the database was away: got|` + lost,
			changes: ackBeforeCommit(),
		},
		{
			name: "bar 14: one error for all records", file: publishing, suite: bar("14-partial"), says: `of 256 in a batch of 256: got`,
			changes: oneErrorForAll(),
		},
		{
			name: "bar 14: an outage counts attempts", file: publishing, suite: bar("14-outage"), says: `during the outage: got \d+ rows written`,
			changes: outageCounts(),
		},
		{
			name: "bar 14: an election counts attempts", file: "relay/nats/publisher.go", suite: bar("14-leader"), says: `while leaders were elected: got [1-9]`,
			changes: []change{{"return p.unavailable(fmt.Errorf(\"stream %s does", "return fmt.Errorf(\"%w\", fmt.Errorf(\"stream %s does"}},
		},
	}
}

func ackBeforeCommit() []change {
	return []change{{"rc.runs.failed(err)\n\t\treturn fmt.Errorf(\"relay: receiver %q: %w\", rc.name, err)\n", "rc.runs.failed(err)\n\t\treturn nil\n"}}
}

func oneErrorForAll() []change {
	return []change{{"failed[places[i]] = err\n", "for j := range batch {\n\t\t\t\t\tfailed[j] = err\n\t\t\t\t}\n\t\t\t\t_ = places[i]\n"}}
}

func outageCounts() []change {
	return []change{{"return p.unanswered(record, err), true", "return err, true"}}
}

func dedupedApart() []change {
	return []change{{"\t\tadded, err := r.store.Receive(ctx, tx, rc.name, hashes)\n",
		"\t\tvar added map[string]bool\n\t\terr := txn.InTx(ctx, r.db, func(tx bun.Tx) (err error) {\n\t\t\tadded, err = r.store.Receive(ctx, tx, rc.name, hashes)\n\t\t\treturn err\n\t\t})\n"}}
}

func notDeduped() []change {
	return []change{{"if !a.isNew(added) {", "if len(added) > len(hashes) {"}}
}

func settledBeforeAck() []change {
	return []change{{"\tresults := p.pub.Publish(calling, records)\n", "\tgo p.pub.Publish(context.WithoutCancel(ctx), records)\n\tvar results []error\n"}}
}
