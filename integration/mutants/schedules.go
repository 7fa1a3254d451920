//go:build unix

package main

// scheduleMutants break what keeps schedules, and insert ids of renamed consumers, going.
func scheduleMutants() []mutant {
	return []mutant{
		{
			name: "five seconds for a fire, whatever its layers take", file: "internal/store/schedule.go",
			suite: suite{pkg: inSchedule, tests: "^TestASlowProduceLayerWedgesNoSchedules$/^postgres$"}, says: "all schedules fire|calls of the layer: got",
			changes: []change{{`fmt.Sprintf("%dms", limit.Milliseconds())`, `fmt.Sprintf("%dms", min(limit, 5*time.Second).Milliseconds())`}},
		},
		{
			name: "a lone schedule is refused for ever", file: "schedule/bisect.go",
			suite: suite{pkg: inSchedule, tests: "^TestALoneScheduleThatIsRefusedIsMarkedInTheEnd$"}, says: "it is marked",
			changes: []change{{"const patience = 3\n", "const patience = 1 << 30\n"}},
		},
		{
			name: "insert ids under former names are forgotten", file: "outbox/producer.go",
			suite: suite{pkg: inOutbox, tests: "^TestARenamedConsumersInsertIDIsPendingOnce$/^postgres$"}, says: "produce what is pending under the former name: got",
			changes: []change{{"				row.FormerConsumers = consumer.Names()[1:]\n", ""}},
		},
		{
			name: "renewals of nothing only read", file: "internal/store/mariadb/lease.go",
			suite: suite{pkg: inStore, tests: "^TestMariaDBRenewalsWrite$"}, says: "renewal of nothing, read-only: got error",
			changes: []change{{"Scan(ctx, &owned); err != nil {", "Scan(ctx, &owned); err != nil || len(owned) == 0 {"}},
		},
	}
}
