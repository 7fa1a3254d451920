//go:build unix

package main

// reportMutants tell people what is not so.
func reportMutants() []mutant {
	const tally = "internal/presence/tally.go"
	inReports := suite{pkg: inStore, tests: underStore + "^reports$"}
	reports := func(test string) suite { return suite{pkg: inOutbox, tests: test + "/^postgres$"} }
	return []mutant{
		{
			name: "reports: who vanished is not noted", file: pgLease, suite: inReports, says: `got \[\], want two`,
			changes: []change{{"{now} FROM hit h),\ndying", "{now} FROM hit h WHERE h.id < 0),\ndying"}},
		},
		{
			name: "reports: a failure is as old as its report", file: "internal/store/reports.go", suite: inReports, says: `first and last`,
			changes: []change{{"if !at.IsZero() {", "if false {"}},
		},
		{
			name: "reports: the program's own version is not told", file: "internal/presence/presence.go", suite: reports("^TestReports$"), says: `want one processor, which has stopped`,
			changes: []change{{"version = cmp.Or(c.Registry.Version(), version)", "_ = version"}},
		},
		{
			name: "reports: a minute is overwritten", file: "internal/store/reports.go", suite: inReports, says: `minutes:`,
			changes: []change{{`s.names.Merge("consumer_type, minute", columns, nil)`, `s.names.Merge("consumer_type, minute", nil, columns)`}},
		},
		{
			name: "reports: a process is there only if all of its report can be written", file: "internal/store/reports.go", suite: inReports, says: `processes:`,
			changes: []change{
				{"if err := s.present(ctx, db, r); err != nil {", "if err := error(nil); err != nil {"},
				{"\tif len(r.Minutes)+len(r.Failures) == 0 {\n\t\treturn nil", "\tif len(r.Minutes)+len(r.Failures) == 0 {\n\t\treturn s.present(ctx, db, r)"},
				{"if err := s.WriteFirst(ctx, tx); err != nil {", "if err := s.present(ctx, tx, r); err != nil {"},
			},
		},
		{
			name: "reports: kinds of failures fill the table", file: "internal/store/reports.go", suite: inReports, says: `kinds of c:`,
			changes: []change{{"kinds[f.ConsumerType] >= keptKinds", "len(failures) >= keptKinds"}},
		},
		{
			name: "reports: what is old grows faster than it is deleted", file: "internal/store/history.go", suite: inReports, says: `forgotten:`,
			changes: []change{{"for n := limit; n == limit; total += n {", "for n, once := 0, true; once; total, once = total+n, false {"}},
		},
		{
			name: "poison: names that only other programs know count for nothing", file: "outbox/admin_names.go", suite: suite{pkg: inPoison, tests: "^TestRenamedElsewhere$/^postgres$"}, says: `requeued: got`,
			changes: []change{{"; !read[of] {", "; read[of] {"}},
		},
		{
			name: "reports: what poisoned a message is not known", file: "outbox/report.go", suite: reports("^TestNoReports$"), says: `gave up waiting: it is poisoned`,
			changes: []change{{"\t\tresult.Fingerprint = print\n", ""}},
		},
		{
			name: "reports: what could not be written is lost", file: tally, suite: reports("^TestReportsThatCannotBeWritten$"), says: `gave up waiting: all is told`,
			changes: []change{{"r.tallies[minutes[i].ConsumerType].add(&minutes[i].Tally)", "_ = minutes[i]"}},
		},
		{
			name: "reports: the last one has not all", file: "internal/presence/presence.go", suite: reports("^TestReports$"), says: `(fine|fails): got .*, want `,
			changes: []change{{"\treport.Minutes, report.Failures = r.take()\n", "\tif !last {\n\t\treport.Minutes, report.Failures = r.take()\n\t}\n"}},
		},
		{
			name: "reports: who has stopped has vanished", file: "outbox/admin_reports.go", suite: reports("^TestExplainGoesByTheFleet$"), says: `which vanished at`,
			changes: []change{{"case !p.StoppedAt.IsZero():", "case p.StoppedAt.Year() > 9999:"}},
		},
	}
}
