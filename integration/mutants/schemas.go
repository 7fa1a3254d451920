//go:build unix

package main

// schemaMutants lose the schema of a stored payload, or what a deploy would break.
func schemaMutants() []mutant {
	unit := func(names string) suite { return tests("bus", names) }
	return []mutant{
		{"schema: a stored payload is taken as the newest", in("Message.Deliver", replace("TakeSchema(to.Headers)", "0")),
			inOutbox("TestMessagesOfAnOlderReleaseAreUpcast/sqlite"), `got \["batch 0"`},
		{"schema: it is not stored", in("Producer.rows", replace("access.Schema(…)", "1")),
			inOutbox("TestAnOlderProcessLeavesANewerSchema/sqlite"), `gave up waiting: the older process leaves them`},
		{"schema: each upcaster is the first", in("schemas.upcast", replace("s[from-1].call(…)", "s[0].call(ctx, text)")),
			unit("TestStoredSchemasAreUpcast"), `schema 1: got`},
		{"schema: a newer one is poisoned", in("stored.failure", never("isNewer(err)")), unit("TestNewerSchemaIsLeftToNewerProcesses"),
			`got condemned`},
		{"schema: a schedule does not store it", in("Scheduler.row", never("schema > 1")), inSchedule("TestSchedulesKeepTheirSchema/sqlite"),
			`got \["1  1" "20 acme 2"\], want`},
		{"schema: an event of a newer one is parked", in("reader.understand", replace("m.Schema > r.newest(payloadType)", "false")),
			inRelay("TestReceivedEventsAreUpcast/sqlite"), `gave up waiting: the older one stands back`},
		{"contract: a field may be gone", in("schemas.properties", replace("s.breaks(…)", "")),
			tests("bustest", "TestContract/a_field_is_gone"), `got "", want "payload`},
	}
}
