//go:build unix

package main

// doctorMutants make the doctor miss what is wrong, or tell too much.
func doctorMutants() []mutant {
	const server, work = "ops/doctor_server.go", "ops/doctor_work.go"
	on := func(tests string) suite { return suite{pkg: "./integration/ops", tests: tests} }
	return []mutant{
		{
			name: "doctor: an invalid index will do", file: "internal/store/diagnose.go", suite: on("^TestDoctorLooksAtIndexes$/^postgres$"), says: `indexes: got .*, want one problem`,
			changes: []change{{"valid[found.Name] = found.Valid", "valid[found.Name] = true"}},
		},
		{
			name: "doctor: an index that older tables lack is lost", file: "internal/store/diagnose.go", suite: on("^TestDoctorLooksAtTables$/^sqlite$"), says: `indexes: got .*, want one fine`,
			changes: []change{{"if m.version > version {", "if m.version > version+100 {"}},
		},
		{
			name: "doctor: who only writes keeps nothing", file: "internal/store/postgres/diagnose.go", suite: on("^TestDoctorLooksAtSnapshots$/^postgres_writing$"), says: `an old snapshot: got \[\]`,
			changes: []change{{"(a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL)", "a.backend_xmin IS NOT NULL"}},
		},
		{
			name: "doctor: transactions are as old as the session's zone says", file: "internal/store/mariadb/diagnose.go", suite: on("^TestDoctorLooksAtSnapshots$/^mariadb$"), says: `snapshot: got`,
			changes: []change{{"CONVERT_TZ(UTC_TIMESTAMP(6), '+00:00', 'SYSTEM')", "NOW(6)"}},
		},
		{
			name: "brief reads are compiled", file: "internal/store/postgres/setup.go", suite: suite{pkg: inStore, tests: "^TestBriefReadsAreNotCompiled$"}, says: `meanwhile: got jit on`,
			changes: []change{{"set_config('statement_timeout', ?0, true), set_config('jit', 'off', true),", "set_config('statement_timeout', ?0, true),"}},
		},
		{
			name: "doctor: who has stopped takes messages", file: work, suite: on("^TestDoctorLooksAtConsumers$/^sqlite$"), says: `consumers: got .*, want one problem`,
			changes: []change{{"if p.Status != outbox.ProcessAlive {\n\t\t\tcontinue", "if p.Status == outbox.ProcessVanished {\n\t\t\tcontinue"}},
		},
		{
			name: "doctor: messages with keys are no strangers", file: work, suite: on("^TestDoctorLooksAtConsumers$/^mariadb$"), says: `consumers: got .*, want`,
			changes: []change{{"if !taken[name] {", "if !taken[name] && len(rows) > 1000 {"}},
		},
		{
			name: "doctor: one check that fails ends all", file: "ops/doctor.go", suite: on("^TestDoctorGoesOn$/^sqlite$"), says: `no such column`,
			changes: []change{{"\t\tcase err != nil:\n", "\t\tcase err != nil:\n\t\t\treturn all, err\n"}},
		},
		{
			name: "doctor: errors of schedules are told", file: work, suite: on("^TestDoctorLooksAtSchedules$/^sqlite$"), says: `want no text of an error`,
			changes: []change{{"Its error says why.\", instant(row.NextFire))", "Its error: %s.\", instant(row.NextFire), row.LastError)"}},
		},
		{
			name: "doctor: a pool is enough for each", file: server, suite: on("^TestDoctorLooksAtThePool$/^sqlite$"), says: `pool: got .*, want one warning`,
			changes: []change{{"need += max(p.Connections, 1)", "need = max(need, p.Connections)"}},
		},
	}
}
