//go:build unix

package main

import "slices"

const (
	guard     = "console/guard.go"
	inConsole = "./console"
)

// attack is one of the attacks on the console, which have numbers: see integration/console.
func attack(name string) suite {
	return suite{pkg: "./integration/console", tests: "^TestAttack" + name + "$"}
}

// consoleMutants open each of the holes that an attack goes through.
func consoleMutants() []mutant {
	return slices.Concat(
		doorMutants(),
		changeMutants(),
		originMutants(),
		frameMutants(),
		markupMutants(),
		contentMutants(),
		aroundMutants(),
		terminalMutants(),
		boundsMutants(),
		bodyMutants(),
		rateMutants(),
		pageMutants(),
	)
}

// doorMutants let people into the console who may not look.
func doorMutants() []mutant {
	nobody := attack("04NobodyInParticular")
	around := attack("07PathsAroundTheLogin")
	const asset = `v.who, v.seat = ops.Principal{Name: "asset", Role: ops.Viewer}, v.desk.As(ops.Principal{Name: "asset", Role: ops.Viewer})`
	return []mutant{
		{
			name: "console: open where nobody says who may look", file: "console/console.go", suite: attack("01NobodySaysWhoMayLook"), says: `no Authorize: got console true`,
			changes: []change{{"if c.Authorize == nil {", "if c.Authorize == nil {\n\t\tc.Authorize = func(*http.Request) (ops.Principal, error) { return ops.Principal{Name: \"anybody\", Role: ops.Viewer}, nil }\n\t}\n\tif c.Authorize == nil {"}},
		},
		{
			name: "console: a login that panics lets in", file: guard, suite: attack("02TheLoginPanics"), says: `got status 200, .* want a status of \[403\]`,
			changes: []change{{"who, err = ops.Principal{}, errPanicked", "who, err = ops.Principal{Name: \"somebody\", Role: ops.Viewer}, nil"}},
		},
		{
			name: "console: who comes with an error is let in", file: guard, suite: attack("03TheLoginRefuses"), says: `got status 200, .* want a status of \[401\]`,
			changes: []change{{"case err != nil && !errors.Is(err, errPanicked):", "case err != nil && who.Name == \"\":"}, {"case err != nil || who.Name == \"\" ||", "case who.Name == \"\" ||"}},
		},
		{
			name: "console: no role is one", file: guard, suite: nobody, says: `want a status of \[403\] and no page`,
			changes: []change{{" || who.Role == ops.None || who.Role >", " || who.Role >"}},
		},
		{
			name: "console: no name is one", file: guard, suite: nobody, says: `want a status of \[403\] and no page`,
			changes: []change{{"case err != nil || who.Name == \"\" ||", "case err != nil ||"}},
		},
		{
			name: "console: a role that is none of ours is one", file: guard, suite: nobody, says: `want a status of \[403\] and no page`,
			changes: []change{{" || who.Role > ops.Administrator:", ":"}},
		},
		{
			name: "console: assets are for everybody", file: guard, suite: around, says: `who is not logged in: got status 200`,
			changes: []change{{"\twho, err := v.whoAsks()\n", "\tif strings.HasSuffix(v.path, \".css\") {\n\t\t" + asset + "\n\t\treturn nil\n\t}\n\twho, err := v.whoAsks()\n"}},
		},
		{
			name: "console: what looks like an asset is for everybody", file: guard, suite: around, says: `assets/.*messages": got status 200`,
			changes: []change{
				{"\twho, err := v.whoAsks()\n", "\tif strings.Contains(v.path, \"assets/\") {\n\t\t" + asset + "\n\t\treturn nil\n\t}\n\twho, err := v.whoAsks()\n"},
				{"v.routes[v.path]", "v.routes[v.path[strings.LastIndex(v.path, \"/\")+1:]]"},
			},
		},
		{
			name: "console: all names lead to it", file: guard, suite: attack("13OtherNames"), says: `want status 421 and no page`,
			changes: []change{{"knownHost(v.config.Hosts, v.r.Host)", "knownHost(v.config.Hosts, v.config.Hosts[0])"}},
		},
		{
			name: "console: names that begin as ours lead to it", file: "console/host.go", suite: attack("13OtherNames"), says: `of "console.example.evil.example": got`,
			changes: []change{{"strings.EqualFold(known, withoutPort(host))", "strings.HasPrefix(strings.ToLower(host), known)"}},
		},
	}
}

// changeMutants let people change what they may not.
func changeMutants() []mutant {
	const everybodysSeat = "v.desk.As(ops.Principal{Name: who.Name, Role: ops.Administrator})"
	byGet := attack("08ChangesByGet")
	return []mutant{
		{
			name: "console: a viewer changes", file: guard, suite: attack("05AViewerChanges"), says: `changes were let through: \[`,
			changes: []change{{"v.desk.As(who)", everybodysSeat}, {"if v.who.Role < v.route.role {", "if v.who.Role < ops.Viewer {"}},
		},
		{
			name: "console: a viewer is offered changes", file: "console/template.go", suite: attack("05AViewerChanges"), says: `a viewer is offered`,
			changes: []change{{"return v.who.May(action, consumer) == nil", "return v.who.May(action, consumer) == nil || consumer != \"-\""}},
		},
		{
			name: "console: an operator has the desk's seat of another", file: guard, suite: attack("06AnOperatorDoesWhatCannotBeUndone"), says: `were let through: \[`,
			changes: []change{{"v.desk.As(who)", everybodysSeat}},
		},
		{
			name: "console: an operator cancels", file: "ops/role.go", suite: attack("06AnOperatorDoesWhatCannotBeUndone"), says: `with "cancel": got`,
			changes: []change{{"RunNow, Reschedule, Requeue, RunSchedule", "RunNow, Reschedule, Cancel, Requeue, RunSchedule"}},
		},
		{
			name: "console: roles of routes are not looked at", file: guard, suite: suite{pkg: inConsole, tests: "^TestGuards$"}, says: `GET edit\?id=1: got 500`,
			changes: []change{{"\t\t(*visit).hasRole,\n", ""}},
		},
		{
			name: "console: changes by GET", file: guard, suite: byGet, says: `want status 405`,
			changes: []change{
				{"if method := v.r.Method; found.method != method &&", "if method := v.r.Method; found.method != method && method == http.MethodPost &&"},
				{"func (v *visit) hasForm() error {\n", "func (v *visit) hasForm() error {\n\tv.form = v.query\n"},
			},
		},
		{
			name: "console: a header makes another method of GET", file: guard, suite: byGet, says: `want status 405`,
			changes: []change{
				{"func (v *visit) admit() error {\n", "func (v *visit) admit() error {\n\tif method := v.r.Header.Get(\"X-HTTP-Method-Override\"); method != \"\" {\n\t\tv.r.Method = method\n\t}\n"},
			},
		},
		{
			name: "console: a plan is anybody's to start", file: "ops/decide.go", suite: attack("23OthersPlans"), says: `another has started it`,
			changes: []change{{"case !o.By(s.who):", "case o.Actor == \"\":"}},
		},
		{
			name: "console: a plan is started again", file: "ops/decide.go", suite: attack("23OthersPlans"), says: `started again`,
			changes: []change{{"\tcase o.underWay():\n", "\tcase o.ID < 0:\n"}, {"case o.State != Planned:", "case o.State == Done:"}},
		},
		{
			name: "console: the form that starts a plan makes it wider", file: "console/plan.go", suite: attack("23OthersPlans"), says: `the plan was changed by the form`,
			changes: []change{{"\tstarted, err := v.seat.Start(", "\tif a.flag(\"all\") {\n\t\tplanned, err := v.seat.Plan(v.ctx(), ops.Requeue, ops.Target{Poisoned: &poison.Filter{}})\n\t\tif err != nil {\n\t\t\treturn link{}, err\n\t\t}\n\t\t_, _ = v.seat.Undo(v.ctx(), \"\", id)\n\t\tid = planned.ID\n\t}\n\tstarted, err := v.seat.Start("},
				{"\t\"github.com/asyncmonolith/asyncmonolith-go/ops\"\n", "\t\"github.com/asyncmonolith/asyncmonolith-go/ops\"\n\t\"github.com/asyncmonolith/asyncmonolith-go/poison\"\n"}},
		},
	}
}

// originMutants take changes from pages of others.
func originMutants() []mutant {
	const check = "v.origins.Check(v.r) != nil {"
	return []mutant{
		{
			name: "console: changes from other sites of old browsers", file: guard, suite: attack("09ChangesFromOtherSites"), says: `an old browser: got`,
			changes: []change{{check, "v.r.Header.Get(\"Sec-Fetch-Site\") == \"cross-site\" {"}},
		},
		{
			name: "console: changes from other sites that navigate", file: guard, suite: attack("09ChangesFromOtherSites"), says: `a page elsewhere that says navigate: got`,
			changes: []change{{check, "v.r.Header.Get(\"Sec-Fetch-Mode\") != \"navigate\" && " + check}},
		},
		{
			name: "console: origins that begin as ours are ours", file: guard, suite: attack("09ChangesFromOtherSites"), says: `a name that begins as ours: got`,
			changes: []change{{check, "v.origins.Check(v.r) != nil && !strings.HasPrefix(v.r.Header.Get(\"Origin\"), \"http://\"+v.r.Host) {"}},
		},
		{
			name: "console: neighbours are of our own", file: guard, suite: attack("10ChangesFromTheSameSite"), says: `a neighbour.*: got`,
			changes: []change{{check, "v.r.Header.Get(\"Sec-Fetch-Site\") != \"same-site\" && " + check}},
		},
		{
			name: "console: no origin is one", file: guard, suite: attack("11ChangesOfNoOrigin"), says: `a sandboxed frame.*: got`,
			changes: []change{{check, "v.r.Header.Get(\"Origin\") != \"null\" && " + check}},
		},
		{
			name: "console: what says nothing of where it is from is ours", file: guard, suite: attack("12ChangesOfNobody"), says: `neither header: got`,
			changes: []change{{"v.r.Header.Get(\"Sec-Fetch-Site\") == \"\" && v.r.Header.Get(\"Origin\") == \"\" || ", ""}},
		},
	}
}

// frameMutants leave to pages of others what they can do with one of ours, or have it send people to them.
func frameMutants() []mutant {
	frames, redirects := attack("17Frames"), attack("18OpenRedirects")
	return []mutant{
		{
			name: "console: frames, by the old header", file: guard, suite: frames, says: `got X-Frame-Options ""`,
			changes: []change{{"\th.Set(\"X-Frame-Options\", \"DENY\")\n", ""}},
		},
		{
			name: "console: frames, by the policy", file: guard, suite: frames, says: `want frame-ancestors 'none'`,
			changes: []change{{" frame-ancestors 'none';", ""}},
		},
		{
			name: "console: scripts in pages run", file: guard, suite: frames, says: `want script-src 'self'`,
			changes: []change{{"script-src 'self';", "script-src 'self' 'unsafe-inline';"}},
		},
		{
			name: "console: what is refused has no policy", file: "console/console.go", suite: frames, says: `got policy \[""\]`,
			changes: []change{{"\tsecure(w.Header())\n", ""}, {"\tif err := v.route.answer(v); err != nil {", "\tsecure(w.Header())\n\tif err := v.route.answer(v); err != nil {"}},
		},
		{
			name: "console: other sites frame pages", file: guard, suite: frames, says: `in a frame of another site: got status 200`,
			changes: []change{{" || v.r.Header.Get(\"Sec-Fetch-Dest\") != \"document\" {", " {"}},
		},
		{
			name: "console: forms lead back to wherever they say", file: "console/prefs.go", suite: redirects, says: `back to ".*want a page of the console`,
			changes: []change{{"return v.back(v.form.Get(\"back\")), nil", "return link{path: v.form.Get(\"back\")}, nil"}},
		},
		{
			name: "console: the login is at the host that was asked for", file: guard, suite: redirects, says: `want the login as it is configured`,
			changes: []change{{"return elsewhere{v.login()}", "return elsewhere{\"https://\" + v.r.Host + \"/in\"}"}},
		},
		{
			name: "console: a login sends people on to what looks like a host", file: guard, suite: redirects, says: `and back: got status 303`,
			changes: []change{{"\t\tname = \"\"\n", ""}},
		},
		{
			name: "console: forms lead back to what is no page", file: "console/prefs.go", suite: suite{pkg: inConsole, tests: "^TestBackStaysHere$"}, says: `back to ".*want "\./"`,
			changes: []change{{"!known || r.page == nil || r.method != http.MethodGet {", "!known && r.page != nil {"}},
		},
	}
}
