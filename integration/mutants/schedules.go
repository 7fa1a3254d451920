//go:build unix

package main

// scheduleMutants break what keeps schedules, and insert ids of renamed consumers, going.
func scheduleMutants() []mutant {
	lastFires := suite{pkg: inSchedule, tests: "^TestLastFiresOfASchedule$/^sqlite$"}
	return []mutant{
		{
			name: "five seconds for a fire, whatever its layers take", file: "internal/store/schedule.go",
			suite: suite{pkg: inSchedule, tests: "^TestASlowProduceLayerWedgesNoSchedules$/^postgres$"}, says: "all schedules fire|calls of the layer: got",
			changes: []change{{`s.within(ctx, tx, limit)`, `s.within(ctx, tx, min(limit, 5*time.Second))`}},
		},
		{
			name: "a lone schedule is refused for ever", file: "schedule/bisect.go",
			suite: suite{pkg: inSchedule, tests: "^TestALoneScheduleThatIsRefusedIsMarkedInTheEnd$"}, says: "it is marked",
			changes: []change{{"const patience = 3\n", "const patience = 1 << 30\n"}},
		},
		{
			name: "schedules: a layer that panics ends the process", file: "schedule/fire.go", suite: suite{pkg: inSchedule, tests: "^TestAChainThatPanicsHoldsNobodyBack$/^layer$/^sqlite$"}, says: `panic: no tenant`,
			changes: []change{{"\t\tif value := recover(); value != nil {\n", "\t\tif value := any(nil); value != nil {\n"}},
		},
		{
			name: "schedules: fires are not noted", file: "schedule/fire.go", suite: lastFires, says: `last fires: got`,
			changes: []change{{"return batch, bad, p.store.NoteFires(ctx, tx, notes)", "return batch, bad, nil"}},
		},
		{
			name: "schedules: what could not fire is not noted", file: "schedule/fire.go", suite: lastFires, says: `fire 9: got|last fires: got`,
			changes: []change{{"\t\terr = p.store.NoteFires(ctx, tx, notes)\n", "\t\t_ = notes\n"}},
		},
		{
			name: "schedules: fires are kept for ever", file: "internal/store/fires.go", suite: lastFires, says: `last fires: got`,
			changes: []change{{"firesKept      = 10", "firesKept      = 1 << 20"}},
		},
		{
			name: "schedules: brief lists read payloads", file: "internal/store/schedule.go", suite: suite{pkg: inSchedule, tests: "^TestSchedulesAreListedInPages$/^sqlite$"}, says: `brief true: got`,
			changes: []change{{"\t\tlarge = \"\"\n", "\t\tlarge += \"\"\n"}},
		},
		{
			name: "insert ids under former names are forgotten", file: "internal/store/insert.go",
			suite: suite{pkg: inOutbox, tests: "^TestARenamedConsumersInsertIDIsPendingOnce$/^postgres$"}, says: "produce what is pending under the former name: got",
			changes: []change{{"		row.FormerConsumers = c.Names()[1:]\n", ""}},
		},
		{
			name: "renewals of nothing only read", file: "internal/store/mariadb/lease.go",
			suite: suite{pkg: inStore, tests: "^TestMariaDBRenewalsWrite$"}, says: "renewal of nothing, read-only: got error",
			changes: []change{{"Scan(ctx, &owned); err != nil {", "Scan(ctx, &owned); err != nil || len(owned) == 0 {"}},
		},
	}
}
