//go:build unix

package main

// boundsMutants let one request take as much as somebody likes.
func boundsMutants() []mutant {
	numbers, bombs := attack("19NumbersWithoutLimits"), attack("20CronBombs")
	return []mutant{
		{
			name: "console: rates without a limit", file: "console/plan.go", suite: numbers, says: `rate > 100000 .*: got [1-9]`,
			changes: []change{{"mostRate   = 100_000", "mostRate   = 1<<63 - 1"}},
			also:    map[string][]change{"ops/decide.go": {{"if rate < 1 || rate > mostRate {", "if rate < 1 {"}}},
		},
		{
			name: "console: canaries without a limit", file: "console/plan.go", suite: numbers, says: `start with canary.* canary > 500: got [1-9]`,
			changes: []change{{"mostCanary = 500", "mostCanary = 1<<63 - 1"}},
			also:    map[string][]change{"ops/plan.go": {{"if t.Canary > mostCanary {", "if t.Canary < 0 {"}}},
		},
		{
			name: "console: times without a limit", file: "console/ask.go", suite: numbers, says: `available_after .*: got [1-9]`,
			changes: []change{{" && t.UTC().Year() >= 1970 && t.UTC().Year() < 10_000 {", " {"}},
			also:    map[string][]change{"outbox/admin_change.go": {{"if year := at.UTC().Year(); at.IsZero() || year < 1 || year > 9999 {", "if at.IsZero() {"}}},
		},
		{
			name: "console: addresses without a limit", file: guard, suite: numbers, says: `aaa|a&a&.*want that it is refused`,
			changes: []change{{"if len(v.r.URL.RawQuery) > mostQuery {", "if len(v.r.URL.RawQuery) > 1000*mostQuery {"}},
		},
		{
			name: "console: numbers that are none are an error of ours", file: "console/ask.go", suite: numbers, says: `got (\d+ bytes of )?status 500`,
			changes: []change{{"return refusal{http.StatusBadRequest, a.wrong}", "return refusal{http.StatusInternalServerError, a.wrong}"}},
		},
		{
			name: "console: texts without a limit", file: "console/ask.go", suite: suite{pkg: inConsole, tests: "^TestGuards$"}, says: `GET consumer\?name=a+: got 500`,
			changes: []change{{"if len(text) > mostText {", "if len(text) > 1000*mostText {"}},
		},
		{
			name: "console: expressions of schedules without a limit", file: "console/deed.go", suite: bombs, says: `schedules that have it`,
			changes: []change{{`a.text("expression")`, `a.values.Get("expression")`}},
			also:    map[string][]change{"schedule/cron/parse.go": {{"maxExpression = 1024", "maxExpression = 1 << 20"}}},
		},
		{
			name: "console: days that never come are looked for", file: "schedule/cron/expression.go", suite: bombs, says: `took`,
			changes: []change{{"min(year+searchYears, lastYear)", "year + 3_000_000*searchYears"}},
		},
		{
			name: "console: zones that are none are taken", file: "schedule/scheduler.go", suite: bombs, says: `zone .*: got status 303`,
			changes: []change{{"errors.Join(expressionErr, zoneErr)", "expressionErr"}, {"location, zoneErr :=", "location, _ :="}},
		},
		{
			name: "console: lists without an end", file: "console/ask.go", suite: suite{pkg: attack("").pkg, tests: "^TestHugePages$", all: true}, says: `links, which nobody reads|got \d+ bytes`,
			changes: []change{{"const pageSize = 50", "const pageSize = 1000"}},
		},
	}
}

// bodyMutants read whatever somebody sends, for as long as they like.
func bodyMutants() []mutant {
	large := attack("21LargeBodies")
	return []mutant{
		{
			name: "console: bodies without a limit", file: guard, suite: large, says: `64 MiB, announced as .*: got`,
			changes: []change{{"v.r.Body = http.MaxBytesReader(v.w, v.r.Body, mostBody)", "v.r.Body = http.MaxBytesReader(v.w, v.r.Body, 1000*mostBody)"}},
		},
		{
			name: "console: bodies that are no forms are read", file: guard, suite: large, says: `text/plain: got`,
			changes: []change{{`strings.TrimSpace(kind) != "application/x-www-form-urlencoded"`, `strings.TrimSpace(kind) == ""`}},
		},
		{
			name: "console: bodies may come for ever", file: guard, suite: attack("21SlowBodies"), says: `after a minute the connection is still there`,
			changes: []change{{"bodyTime  = 10 * time.Second", "bodyTime  = 10 * time.Minute"}},
		},
	}
}

// rateMutants let one person ask as often as they like, or keep others out.
func rateMutants() []mutant {
	often := suite{pkg: attack("").pkg, tests: "^TestTooOften$"}
	return []mutant{
		{
			name: "console: anybody asks as often as they like", file: guard, suite: often, says: `of 200 requests at once`,
			changes: []change{{"\t\t(*visit).isSeldom,\n", ""}},
		},
		{
			name: "console: anybody changes as often as they like", file: guard, suite: often, says: `of 20 changes at once`,
			changes: []change{{"\t\t(*visit).changesSeldom,\n", ""}},
		},
		{
			name: "console: who asks too often keeps others out", file: guard, suite: often, says: `another person: got status 429`,
			changes: []change{{"v.limits.ask(v.who.Name)", "v.limits.ask(\"\")"}},
		},
		{
			name: "console: nobody is told when to try again", file: guard, suite: often, says: `nothing says when to try again`,
			changes: []change{{"\tv.w.Header().Set(\"Retry-After\", fmt.Sprint(int(wait/time.Second)+1))\n", ""}},
		},
		{
			name: "console: names that are made up fill its memory", file: "console/limits.go", suite: suite{pkg: inConsole, tests: "^TestLimits$"}, says: `names are remembered`,
			changes: []change{{"if !known && len(*buckets) >= mostKnown || *buckets == nil {", "if *buckets == nil {"}},
		},
		{
			name: "console: a change that no rate bounds", file: "console/routes.go", suite: suite{pkg: inConsole, tests: "^TestTable$"}, says: `changes are bounded by a rate`,
			changes: []change{{`{path: "rate", method: post, role: ops.Operator, changes: true,`, `{path: "rate", method: post, role: ops.Operator,`}},
		},
	}
}

// pageMutants have pages lead elsewhere, or not do what somebody has chosen.
func pageMutants() []mutant {
	browser := func(test string) suite { return suite{pkg: attack("").pkg, tests: "^" + test + "$"} }
	return []mutant{
		{
			name: "console: links begin at the root", file: "console/link.go", suite: suite{pkg: inConsole, tests: "^TestLinks$"}, says: `got "/consumer\?name=`,
			changes: []change{{"\tif len(l.query) == 0 {", "\tif path != \"./\" {\n\t\tpath = \"/\" + path\n\t}\n\tif len(l.query) == 0 {"}},
		},
		{
			name: "console: behind a proxy, links lead out of it", file: "console/link.go", suite: browser("TestBehindAProxy"), says: `want that it is below /a/b/, the first page|browser: click`,
			changes: []change{{"\t\tpath = \"./\"\n", "\t\tpath = \"/asyncmonolith/\"\n"}},
		},
		{
			name: "console: behind a proxy, changes lead out of it", file: "console/visit.go", suite: browser("TestBehindAProxy"), says: `want that it is below /a/b/`,
			changes: []change{{"\t\tv.w.Header().Set(\"Location\", to.to)\n\t\tv.w.WriteHeader(http.StatusSeeOther)\n", "\t\thttp.Redirect(v.w, v.r, to.to, http.StatusSeeOther)\n"}},
		},
		{
			name: "console: keys are on for who switches them off", file: "console/prefs.go", suite: browser("TestKeysCanBeSwitchedOff"), says: `want data-keys="false"`,
			changes: []change{{"p.Keys = on", "p.Keys = p.Keys || on"}},
		},
		{
			name: "console: keys that are off do something", file: "console/assets/console.js", suite: browser("TestKeysCanBeSwitchedOff"), says: `is open for who has switched keys off`,
			changes: []change{{`root.dataset.keys !== "true" || `, ""}},
		},
		{
			name: "console: scripts see preferences", file: "console/prefs.go", suite: browser("TestKeysCanBeSwitchedOff"), says: `HttpOnly|settings: got`,
			changes: []change{{"HttpOnly: true, ", ""}},
		},
	}
}
