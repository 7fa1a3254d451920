//go:build unix

package main

// schemaMutants lose the schema of a stored payload, or what a deploy would break.
func schemaMutants() []mutant {
	unit := func(names string) suite { return tests("bus", names) }
	contract := func(names string) suite { return tests("bustest", "TestContract/"+names) }
	return []mutant{
		{"schema: a stored payload is taken as the newest", in("Message.Deliver", replace("TakeSchema(to.Headers)", "0")),
			inOutbox("TestMessagesOfAnOlderReleaseAreUpcast/sqlite"), `got \["batch 0"`},
		{"schema: it is not stored", in("Producer.rows", replace("access.Schema(…)", "1")),
			inOutbox("TestAnOlderProcessLeavesANewerSchema/sqlite"), `gave up waiting: the older process leaves them`},
		{"schema: an edited payload keeps that of the stored one", in("Store.reschema", always("edited.Schema == before")),
			inOutbox("TestEditedPayloadsHaveTheirSchema/sqlite"), `no consumer got any more`},
		{"schema: each upcaster is the first", in("schemas.upcast", replace("s[from-1].call(…)", "s[0].call(ctx, text)")),
			unit("TestStoredSchemasAreUpcast"), `schema 1: got`},
		{"schema: an upcaster's failure is tried again", in("stored.failure", replace("Permanent(decode)", "decode")),
			unit("TestUpcasterFailuresAreDecodeErrors"), `bad: got unclassified`},
		{"schema: a newer one is poisoned", in("stored.failure", never("isNewer(err)")), unit("TestNewerSchemaIsLeftToNewerProcesses"),
			`got condemned`},
		{"schema: that of another message counts", in("Consumer.of", replace("m.Event == nil", "true")),
			unit("TestOnlyOwnMessagesAreUpcast"), `an event's message: got`},
		{"schema: a schedule does not store it", in("Scheduler.row", never("schema > 1")), inSchedule("TestSchedulesKeepTheirSchema/sqlite"),
			`got \["1  1" "20 acme 2"\], want`},
		{"schema: a forwarder publishes the stored one", in("route.resolve", replace("access.Upcast(…)", "m.Payload, error(nil)")),
			inRelay("TestForwardersPublishTheNewestSchema/sqlite"), `"amount":1`},
		{"schema: an event of a newer one is parked", in("reader.newer", returns("false")), inRelay("TestReceivedEventsAreUpcast/sqlite"),
			`gave up waiting: the older one stands back`},
		{"contract: a field may be gone", in("schemas.properties", replace("s.breaks(…)", "")), contract("a_field_is_gone"),
			`got "", want "payload`},
		{"contract: a field may have another type", in("schemas.compare", never("was != is")), contract("a_type"), `got "", want "field`},
		{"contract: an alias of a consumer may be gone", in("comparison.consumers", replace("before.Aliases", "[]string(nil)")),
			contract("a_consumer's_alias_is_gone"), `got "", want "alias`},
		{"contract: messages may lack their key", in("comparison.consumers", never("now.NeedsKey")), contract("a_key_is_needed"),
			`got "", want "consumer`},
		{"contract: -update accepts what breaks", in("agrees", never("d.Breaks")), contract("a_field_is_gone"), `with -update: got ""`},
	}
}
