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
			name: "reports: a minute is overwritten", file: "internal/store/reports.go", suite: inReports, says: `minutes:`,
			changes: []change{{`s.names.Merge("consumer_type, minute", columns, nil)`, `s.names.Merge("consumer_type, minute", nil, columns)`}},
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
