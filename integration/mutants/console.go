//go:build unix

package main

// The attacks on the console have numbers: see integration/console. None of these tests needs a browser.

// anAsset lets a request in as that of a viewer.
const anAsset = `r.who = ops.Principal{Name: "asset", Role: ops.Viewer}; r.session = operator.As(r.service, r.who); return nil`

// doorMutants let people into the console who may not look.
func doorMutants() []mutant {
	return []mutant{
		{"console 01: open without Authorize", in("console.Config.check", before("if c.Authorize == nil {…}",
			"c.Authorize = func(*http.Request) (p ops.Principal, err error) { p.Name, p.Role = `x`, ops.Viewer; return }")),
			inConsole("TestAttack01NoAuthorize"), `no Authorize: got console true`},
		{"console 02: a login that panics lets in", in("request.authorize",
			replace("who, err = ops.Principal{}, errPanicked", `who, err = ops.Principal{Name: "somebody", Role: ops.Viewer}, nil`)),
			inConsole("TestAttack02TheLoginPanics"), `got status 200, .* want a status of \[403\]`},
		{"console 03: a principal with an error is let in", in("request.isAuthorized", before("switch {…}", "if who.Name != \"\" { err = nil }")),
			inConsole("TestAttack03TheLoginRefuses"), `got status 200, .* want a status of \[401\]`},
		{"console 04: no role is enough", in("request.isAuthorized", without("ops.None")),
			inConsole("TestAttack04APrincipalWithoutAName"), `want a status of \[403\] and no page`},
		{"console 07: whatever looks like an asset needs no login",
			both(in("request.isAuthorized", before("who, err := r.authorize()", "if strings.Contains(r.path, `assets/`) { "+anAsset+" }")),
				in("request.isRouted", replace("r.routes[r.path]", `r.routes[r.path[strings.LastIndex(r.path, "/")+1:]]`))),
			inConsole("TestAttack07PathsAroundTheLogin"), `assets/.*messages": got status 200`},
		{"console 13: a host may just begin like a known one",
			in("console.knownHost", replace("strings.EqualFold(known, withoutPort(host))", "strings.HasPrefix(strings.ToLower(host), known)")),
			inConsole("TestAttack13OtherNames"), `of "console.example.evil.example": got`},
	}
}

// changeMutants let people change what they may not, or in a way that they may not.
func changeMutants() []mutant {
	asAdministrator := in("request.isAuthorized", replace("operator.As(r.service, who)",
		"operator.As(r.service, ops.Principal{Name: who.Name, Role: ops.Administrator})"))
	return []mutant{
		{"console 05: a viewer changes", both(asAdministrator, in("request.hasRole", never("r.route.role"))),
			inConsole("TestAttack05AViewerChanges"), `changes were let through: \[`},
		{"console 06: an operator acts as an administrator", asAdministrator,
			inConsole("TestAttack06AnOperatorDoesWhatCannotBeUndone"), `with "cancel": got status 303`},
		{"console 08: a change by GET", both(in("request.isRouted", never("found.method != r.Method")),
			in("request.hasForm", before("if r.Method != http.MethodPost {…}", "r.form = r.query"))),
			inConsole("TestAttack08ChangesByGet"), `want status 405`},
		{"console 23: a plan is started by another person", in("ops.Operations.start", never("!o.createdBy(s.who)")),
			inConsole("TestAttack23OthersPlans"), `another has started it`},
	}
}

// originMutants take changes from pages of others, have their pages frame ours, or lead people to them.
func originMutants() []mutant {
	unless := func(what string) mistake {
		return in("request.isOurOwnPost", before("if r.Header.Get(…", "if "+what+" { return nil }"))
	}
	return []mutant{
		{"console 09: old browsers are trusted", unless(`r.Header.Get("Sec-Fetch-Site") != "cross-site"`),
			inConsole("TestAttack09ChangesFromOtherSites"), `an old browser: got`},
		{"console 10: other origins of the site are trusted", unless(`r.Header.Get("Sec-Fetch-Site") == "same-site"`),
			inConsole("TestAttack10ChangesFromTheSameSite"), `a neighbour.*: got`},
		{"console 11: the origin null is trusted", unless(`r.Header.Get("Origin") == "null"`), inConsole("TestAttack11ChangesOfNoOrigin"),
			`a sandboxed frame.*: got`},
		{"console 12: a request without an origin is trusted",
			unless(`r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == ""`), inConsole("TestAttack12ChangesWithoutOriginHeaders"),
			`neither header: got`},
		{"console 17: the policy allows frames", in("console.secure", text("frame-ancestors 'none';", "")),
			inConsole("TestAttack17Frames"), `want frame-ancestors 'none'`},
		{"console 18: a form leads back to any address",
			in("settingsForm.submit", replace(`r.pageAt(f.back)`, `link{path: f.back}`)),
			inConsole("TestAttack18OpenRedirects"), `back to ".*want a page of the console`},
	}
}

// markupMutants make markup, scripts, commands or SQL of what a person typed.
func markupMutants() []mutant {
	const nobodys = `which no page has of itself`
	return []mutant{
		{"console 14: shortened texts are markup",
			in("console.functions", replace(`"short": short`, `"short": func(s string) template.HTML { return template.HTML(short(s)) }`)),
			inConsole("TestAttack14TextsAsMarkup"), nobodys},
		{"console 15: any header is a trace", in("console.isTraceID", without("strings.Trim")),
			inConsole("TestAttack15TracesAsScripts"), `trace ".*: got a link to`},
		{"console 16: quotes of a query end an attribute",
			in("request.show", before("h := r.w.Header()", "b = *bytes.NewBuffer(bytes.ReplaceAll(b.Bytes(), []byte(\"&#34;\"), []byte(`\"`)))")),
			inConsole("TestAttack16ParametersAsMarkup"), nobodys},
		{"console 24: a payload type is SQL", in("PoisonStore.poisonWhere",
			replace(`t.add(f.PayloadType != "", …)`, `t.add(f.PayloadType != "", "payload_type = '"+f.PayloadType+"'")`)),
			inConsole("TestAttack24Wildcards"), `type ".*: got`},
		{"console 26: the command prints texts as they are", in("show.Text", always("utf8.ValidString(s)")),
			inConsole("TestAttack26TerminalCommands"), `which a terminal would act upon`},
	}
}

// contentMutants show what is hidden or others', have people guess it, or tell of the connection.
func contentMutants() []mutant {
	hidden := inConsole("TestAttack22WhatIsHidden")
	return []mutant{
		{"console 22: contents are shown without Redact",
			in("ops.access.shown", before("if s.service.config.Redact == nil || …", "if s.service.config.Redact == nil { return c, true }")),
			hidden, `shows what is hidden`},
		{"console 22: hidden errors can be guessed",
			in("ops.access.maySearch", replace("len(part.Errors)+len(part.Headers)", "len(part.Headers)")),
			hidden, `a viewer can guess what is hidden`},
		{"console 25: poisoned messages of all prefixes", in("PoisonStore.Head", text("{poisoned} WHERE", "poisoned_messages WHERE")),
			inConsole("TestAttack25TablesOfOthers"), `message\?id=.*want status 404`},
		{"console 27: errors of the database are shown", in("request.httpErrorOf", replace("away(err)", "err.Error()")),
			inConsole("TestAttack27SecretsOfTheConnection"), `which tells of the connection`},
	}
}

// boundMutants let one request take as much as somebody likes.
func boundMutants() []mutant {
	return []mutant{
		{"console 19: rates have no limit",
			both(in("console.mostRate", replace("100_000", "1<<63 - 1")), in("ops.Operations.SetRate", without("rate > mostRate"))),
			inConsole("TestAttack19NumbersWithoutLimits"), `rate > 100000 .*: got [1-9]`},
		{"console 20: a day that never comes is looked for",
			in("cron.Expression.searchDay", replace("min(year+searchYears, lastYear)", "year + 3_000_000*searchYears")),
			inConsole("TestAttack20CronBombs"), `took`},
		{"console 21: bodies have no limit", in("request.hasSmallBody", replace("mostBody", "1000*mostBody")),
			inConsole("TestAttack21LargeBodies"), `64 MiB, announced as .*: got`},
	}
}
