//go:build unix

package main

// The attacks on the console have numbers: see integration/console. None of these tests needs a browser.

// anAsset lets a request in as that of a viewer.
const anAsset = `r.who = ops.Principal{Name: "asset", Role: ops.Viewer}; r.session = operator.As(r.service, r.who); return nil`

// doorMutants let people into the console who may not look.
func doorMutants() []mutant {
	unnamed := inConsole("TestAttack04APrincipalWithoutAName")
	around, hosts := inConsole("TestAttack07PathsAroundTheLogin"), inConsole("TestAttack13OtherNames")
	const refused = `want a status of \[403\] and no page`
	return []mutant{
		{"console 01: open without Authorize", in("console.Config.check", before("if c.Authorize == nil {…}",
			"c.Authorize = func(*http.Request) (p ops.Principal, err error) { p.Name, p.Role = `x`, ops.Viewer; return }")),
			inConsole("TestAttack01NoAuthorize"), `no Authorize: got console true`},
		{"console 02: a login that panics lets in", in("request.authorize",
			replace("who, err = ops.Principal{}, errPanicked", `who, err = ops.Principal{Name: "somebody", Role: ops.Viewer}, nil`)),
			inConsole("TestAttack02TheLoginPanics"), `got status 200, .* want a status of \[403\]`},
		{"console 03: a principal with an error is let in", in("request.isAuthorized", before("switch {…}", "if who.Name != \"\" { err = nil }")),
			inConsole("TestAttack03TheLoginRefuses"), `got status 200, .* want a status of \[401\]`},
		{"console 04: no role is enough", in("request.isAuthorized", without("ops.None")), unnamed, refused},
		{"console 07: whatever looks like an asset needs no login",
			both(in("request.isAuthorized", before("who, err := r.authorize()", "if strings.Contains(r.path, `assets/`) { "+anAsset+" }")),
				in("request.isRouted", replace("r.routes[r.path]", `r.routes[r.path[strings.LastIndex(r.path, "/")+1:]]`))), around,
			`assets/.*messages": got status 200`},
		{"console 13: a host may just begin like a known one",
			in("console.knownHost", replace("strings.EqualFold(known, withoutPort(host))", "strings.HasPrefix(strings.ToLower(host), known)")),
			hosts, `of "console.example.evil.example": got`},
		{"console: any number of requests", in("console.guards", omit("(*request).isWithinRate")), inConsole("TestTooOften"),
			`of 200 requests at once`},
		{"console: invented names fill the memory", in("console.take", replace("len(*buckets) >= mostKnown", "false")),
			tests("console", "TestLimits"), `names are remembered`},
	}
}

// changeMutants let people change what they may not, or in a way that they may not.
func changeMutants() []mutant {
	const asAdministrator = "operator.As(r.service, ops.Principal{Name: who.Name, Role: ops.Administrator})"
	viewer, get, plans := inConsole("TestAttack05AViewerChanges"), inConsole("TestAttack08ChangesByGet"), inConsole("TestAttack23OthersPlans")
	undone := inConsole("TestAttack06AnOperatorDoesWhatCannotBeUndone")
	return []mutant{
		{"console 05: a viewer changes",
			both(in("request.isAuthorized", replace("operator.As(r.service, who)", asAdministrator)),
				in("request.hasRole", never("r.route.role"))), viewer,
			`changes were let through: \[`},
		{"console 06: an operator acts as an administrator", in("request.isAuthorized", replace("operator.As(r.service, who)", asAdministrator)), undone,
			`were let through: \[`},
		{"console: roles of routes are not checked", in("console.guards", omit("(*request).hasRole")), tests("console", "TestGuards"),
			`GET edit\?id=1: got 500`},
		{"console 08: a change by GET", both(in("request.isRouted", never("found.method != r.Method")),
			in("request.hasForm", before("if r.Method != http.MethodPost {…}", "r.form = r.query"))), get, `want status 405`},
		{
			"console 23: a plan is started by another person",
			in("ops.Operations.start", never("!o.createdBy(s.who)")),
			plans,
			`another has started it`,
		},
	}
}

// originMutants take changes from pages of others, have their pages frame ours, or lead people to them.
func originMutants() []mutant {
	unless := func(what string) mistake {
		return in("request.isOurOwnPost", before("if r.Header.Get(…", "if "+what+" { return nil }"))
	}
	sites, frames := inConsole("TestAttack09ChangesFromOtherSites"), inConsole("TestAttack17Frames")
	redirects := inConsole("TestAttack18OpenRedirects")
	return []mutant{
		{"console 09: old browsers are trusted", unless(`r.Header.Get("Sec-Fetch-Site") != "cross-site"`), sites, `an old browser: got`},
		{"console 10: other origins of the site are trusted", unless(`r.Header.Get("Sec-Fetch-Site") == "same-site"`),
			inConsole("TestAttack10ChangesFromTheSameSite"), `a neighbour.*: got`},
		{"console 11: the origin null is trusted", unless(`r.Header.Get("Origin") == "null"`), inConsole("TestAttack11ChangesOfNoOrigin"),
			`a sandboxed frame.*: got`},
		{"console 12: a request without an origin is trusted",
			unless(`r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == ""`), inConsole("TestAttack12ChangesWithoutOriginHeaders"),
			`neither header: got`},
		{"console 17: the policy allows frames", in("console.secure", text("frame-ancestors 'none';", "")), frames,
			`want frame-ancestors 'none'`},
		{"console 17: the policy allows inline scripts", in("console.secure", text("script-src 'self';", "script-src 'self' 'unsafe-inline';")),
			frames, `want script-src 'self'`},
		{"console 17: a refusal has no policy",
			in("Console.ServeHTTP", drop("secure"), before("if err := req.route.answer(req); err != nil {…}", "secure(w.Header())")), frames,
			`got policy \[""\]`},
		{"console 17: other sites frame pages", in("request.isOurOwnGet", without(`"Sec-Fetch-Dest"`)), frames,
			`in a frame of another site: got status 200`},
		{"console 18: a form leads back to any address",
			in("settingsForm.submit", replace(`r.pageAt(f.back)`, `link{path: f.back}`)), redirects,
			`back to ".*want a page of the console`},
	}
}

// markupMutants make markup, scripts or commands of what a person typed.
func markupMutants() []mutant {
	const nobodys = `which no page has of itself`
	texts, traces := inConsole("TestAttack14TextsAsMarkup"), inConsole("TestAttack15TracesAsScripts")
	commands := inConsole("TestAttack26TerminalCommands")
	return []mutant{
		{"console 14: shortened texts are markup",
			in("console.functions", replace(`"short": short`, `"short": func(s string) template.HTML { return template.HTML(short(s)) }`)), texts,
			nobodys},
		{"console 15: any header is a trace", in("console.isTraceID", without("strings.Trim")), traces, `trace ".*: got a link to`},
		{"console 15: TraceURL may be a script", in("console.Config.check",
			replace(`err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !strings.Contains(c.TraceURL, traceMark)`,
				`err != nil || u.Scheme == ""`)), traces, `TraceURL "javascript:`},
		{"console 16: quotes of a query end an attribute",
			in("request.show", before("h := r.w.Header()", "b = *bytes.NewBuffer(bytes.ReplaceAll(b.Bytes(), []byte(\"&#34;\"), []byte(`\"`)))")),
			inConsole("TestAttack16ParametersAsMarkup"), nobodys},
		{"console 26: the command prints texts as they are", in("show.Text", always("utf8.ValidString(s)")), commands,
			`which a terminal would act upon`},
		{"console 26: the command prints JSON as it is", in("show.JSON", replace("escaped(string(versioned))", "string(versioned)")), commands,
			`\[--json\]: got the character`},
	}
}

// contentMutants show what is hidden, have people guess it, or tell of the connection.
func contentMutants() []mutant {
	hidden, secrets := inConsole("TestAttack22WhatIsHidden"), inConsole("TestAttack27SecretsOfTheConnection")
	return []mutant{
		{"console 22: contents are shown without Redact",
			in("ops.access.shown", before("if redact == nil || …", "if redact == nil { redact = ShowAll }")), hidden, `shows what is hidden`},
		{"console 22: exports are not redacted", in("operator.Poisoned.Export", replace("s.poisoned(ctx, m)", "PoisonedMessage{Message: m}")), hidden,
			`its answer has what is hidden`},
		{
			"console 22: hidden errors can be guessed",
			in("ops.access.maySearch", replace("len(part.Errors)+len(part.Headers)", "len(part.Headers)")),
			hidden,
			`somebody can guess what is hidden`,
		},
		{"console 22: the log has contents",
			in(
				"ops.access.shown",
				before("if redact == nil || …", `s.service.config.Logger.Info("somebody looks", "payload", string(c.Payload))`),
			),
			hidden, `the log has what is hidden`},
		{"console 27: errors of the database are shown", in("request.httpErrorOf", replace("away(err)", "err.Error()")), secrets,
			`which tells of the connection`},
		{"console 27: the command shows errors of the connection", in("connect.Trouble", replace("cause(err)", "err.Error()")), secrets,
			`want an error that does not tell of the connection`},
		{"console 27: the command accepts a password in its arguments", in("app.findDSN", never("HasPassword")), secrets,
			`want that a password is not taken there`},
	}
}

// filterMutants have filters and ids find what they are not about.
func filterMutants() []mutant {
	wild, tables := inConsole("TestAttack24Wildcards"), inConsole("TestAttack25TablesOfOthers")
	return []mutant{
		{"console 24: a text of an error is a pattern",
			in("PoisonStore.poisonWhere", text("({instr}(reason, ?) > 0 OR", "(reason LIKE '%' || ? || '%' OR")), wild,
			`error ".*: got \d+ messages, want`},
		{"console 24: a payload type is SQL",
			in(
				"PoisonStore.poisonWhere",
				replace(`t.add(f.PayloadType != "", …)`, `t.add(f.PayloadType != "", "payload_type = '"+f.PayloadType+"'")`),
			),
			wild, `type ".*: got`},
		{"console 25: poisoned messages of all prefixes", in("PoisonStore.Head", text("{poisoned} WHERE", "poisoned_messages WHERE")), tables,
			`message\?id=.*want status 404`},
	}
}

// boundMutants let one request take as much as somebody likes.
func boundMutants() []mutant {
	numbers, bombs := inConsole("TestAttack19NumbersWithoutLimits"), inConsole("TestAttack20CronBombs")
	bodies := inConsole("TestAttack21LargeBodies")
	return []mutant{
		{"console 19: rates have no limit",
			both(in("console.mostRate", replace("100_000", "1<<63 - 1")), in("ops.Operations.SetRate", without("rate > mostRate"))), numbers,
			`rate > 100000 .*: got [1-9]`},
		{"console 19: times have no limit",
			both(in("params.instant", without("1970"), without("10_000")), in("admin.checkDue", without("year < 1"), without("year > 9999"))),
			numbers, `available_after .*: got [1-9]`},
		{"console 19: addresses have no limit", in("request.isShort", never("mostQuery")), numbers, `aaa|a&a&.*want that it is refused`},
		{"console 20: a day that never comes is looked for",
			in("cron.Expression.searchDay", replace("min(year+searchYears, lastYear)", "year + 3_000_000*searchYears")), bombs, `took`},
		{"console 21: bodies have no limit", in("request.hasSmallBody", replace("mostBody", "1000*mostBody")), bodies,
			`64 MiB, announced as .*: got`},
		{"console 21: bodies may take for ever", in("console.bodyTime", replace("10 * time.Second", "10 * time.Minute")),
			inConsole("TestAttack21SlowBodies"), `after a minute the connection is still there`},
	}
}
