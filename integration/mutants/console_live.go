//go:build unix

package main

const (
	liveTests  = "./integration/console"
	liveScript = "console/assets/console.js"
	liveVisit  = "console/visit.go"
)

// onPage is a test of pages that look again by themselves.
func onPage(test string) suite { return suite{pkg: liveTests, tests: "^" + test + "$"} }

// liveMutants have pages look again too often or at the wrong things.
func liveMutants() []mutant {
	return []mutant{
		{
			name: "live: fragments have no tag", file: liveVisit, suite: onPage("TestFragments"), says: `want the middle of a page, with a tag`,
			changes: []change{{`h.Set("ETag", tag)`, ``}},
		},
		{
			name: "live: any tag will do", file: liveVisit, suite: onPage("TestFragments"), says: `after a change: got status 304`,
			changes: []change{{`strings.Contains(v.r.Header.Get("If-None-Match"), tag) {`, `strings.Contains(v.r.Header.Get("If-None-Match"), "\"") {`}},
		},
		{
			name: "live: a tag that a proxy has weakened is another", file: liveVisit, suite: onPage("TestFragments"), says: `that a proxy has weakened: got status 200`,
			changes: []change{{`strings.Contains(v.r.Header.Get("If-None-Match"), tag) {`, `strings.HasPrefix(v.r.Header.Get("If-None-Match"), tag) {`}},
		},
		{
			name: "live: a fragment is a page for caches", file: liveVisit, suite: onPage("TestFragments"), says: `got Vary`,
			changes: []change{{`"Cookie, "+fragmentHeader`, `"Cookie"`}},
		},
		{
			name: "live: settings are not kept", file: "console/prefs.go", suite: onPage("TestPagesAreLive"), says: `looks again every 5 s, want 2`,
			changes: []change{{`365*24*60*60)`, `-1)`}},
		},
		{
			name: "live: twice as often as chosen", file: liveScript, suite: onPage("TestPagesAreLive"), says: `want 2s|want 2000 ms each`,
			changes: []change{{`setTimeout(look, every)`, `setTimeout(look, every / 2)`}},
		},
		{
			name: "live: never is often", file: liveScript, suite: onPage("TestPagesAreLive"), says: `never: got`,
			changes: []change{{`Number(root.dataset.every) * 1000`, `(Number(root.dataset.every) || 5) * 1000`}},
		},
	}
}

// awakeMutants have pages look when nobody does, or not when somebody does.
func awakeMutants() []mutant {
	return []mutant{
		{
			name: "live: hidden tabs look", file: liveScript, suite: onPage("TestHiddenTabs"), says: `gave up waiting: a hidden tab does not look`,
			changes: hiddenTabsLook(),
		},
		{
			name: "live: hidden tabs have the database asked", file: liveScript, suite: onPage("TestNobodyLooks"), says: `the tab is hidden: no statement is sent`,
			changes: hiddenTabsLook(),
		},
		{
			name: "live: a tab that is seen again waits", file: liveScript, suite: onPage("TestHiddenTabs"), says: `gave up waiting: #list shows`,
			changes: []change{{"somebody has come back\n    look();", "somebody has come back\n    plan();"}},
		},
		{
			name: "live: the console looks by itself", file: "console/console.go", suite: onPage("TestNobodyLooks"), says: `before anybody has looked: (no statement is sent|got)`,
			changes: []change{
				{"import (\n", "import (\n\t\"context\"\n\t\"time\"\n"},
				{"\tserved, err := loadAssets()\n", "\tgo func() {\n\t\tfor ; ; time.Sleep(100 * time.Millisecond) {\n\t\t\t_, _ = desk.As(ops.Principal{Name: \"console\", Role: ops.Viewer}).Processes(context.Background(), time.Hour)\n\t\t}\n\t}()\n\tserved, err := loadAssets()\n"},
			},
		},
		{
			name: "live: idle pages look", file: liveScript, suite: onPage("TestIdlePages"), says: `#live shows "Paused"`,
			changes: []change{{`const idleAfter = 30 * 60_000`, `const idleAfter = 3000 * 60_000`}},
		},
		{
			name: "live: idle pages are so for good", file: liveScript, suite: onPage("TestIdlePages"), says: `gave up waiting: #list shows`,
			changes: []change{{`if (slept) look();`, ``}},
		},
		{
			name: "live: who comes back to a tab is not there", file: liveScript, suite: onPage("TestIdlePages"), says: `gave up waiting: the page looks again`,
			changes: []change{{`active = Date.now(); // somebody`, `// somebody`}},
		},
	}
}

// refusedMutants do not know what to do with a look that is refused or fails.
func refusedMutants() []mutant {
	return []mutant{
		{
			name: "live: a login in its place is the page", file: liveScript, suite: onPage("TestLoggedOut"), says: `#live shows "not logged in"`,
			changes: []change{{` || (answer.ok && !answer.headers.get(header))`, ``}},
		},
		{
			name: "live: who is logged out asks on", file: liveScript, suite: onPage("TestLoggedOut"), says: `gave up waiting: #live shows "not logged in"`,
			changes: []change{{`every > 0 && !stopped &&`, `every > 0 &&`}},
		},
		{
			name: "live: answers are read that are not wanted", file: liveScript, suite: onPage("TestLoggedOut"), says: `the page does not read what has no end`,
			changes: []change{{`call.abort(); // what`, `// what`}},
		},
		{
			name: "live: a look that hangs is the last", file: liveScript, suite: onPage("TestLooksThatFail"), says: `#live shows "There is no answer"`,
			changes: []change{{`setTimeout(() => call.abort(), patience)`, `setTimeout(() => undefined, patience)`}},
		},
		{
			name: "live: looks overtake each other", file: liveScript, suite: onPage("TestLooksThatFail"), says: `looks at a time, want 1`,
			changes: []change{{`if (asking || !canLook())`, `if (!canLook())`}},
		},
		{
			name: "live: what fails is read out again and again", file: liveScript, suite: onPage("TestLooksThatFail"), says: `it was said \d+ times more`,
			changes: []change{{`if (live.textContent === text) return;`, ``}},
		},
	}
}

func hiddenTabsLook() []change {
	return []change{{`!stopped && !document.hidden`, `!stopped`}, {`if (document.hidden) { clearTimeout(timer); return; }`, ``}}
}

// busyMutants take away from people what they are busy with.
func busyMutants() []mutant {
	replaced := func(name, of string, c change) mutant {
		return mutant{name: "live: " + name + " is taken away", file: liveScript, suite: onPage("TestWhatSomebodyIsBusyWith"), says: of + `: #\w+ was replaced`, changes: []change{c}}
	}
	return []mutant{
		replaced("the focus", "focus", change{`part !== document.activeElement && part.contains(document.activeElement) || `, ``}),
		replaced("what the pointer holds", "what the pointer holds", change{`pressed = event.target;`, ``}),
		replaced("an open detail", "open details", change{`details[open], `, ``}),
		replaced("a dialog", "an open dialog", change{`dialog[open], `, ``}),
		replaced("the row at hand", "the row that the keys are at", change{`dialog[open], .here`, `dialog[open]`}),
		replaced("a checked box", "a checked box", change{`return field.checked !== field.defaultChecked;`, `return false;`}),
		replaced("a choice", "a choice", change{`if (field.options) return`, `if (field.options) return false &&`}),
		replaced("a text", "a text", change{`field.value !== field.defaultValue`, `false`}),
		replaced("a selection", "a selection", change{`Boolean(picked && `, `Boolean(!picked && `}),
		replaced("the end of a selection", "a selection that ends there", change{`containsNode(part, true)`, `containsNode(part)`}),
		{
			name: "live: who is busy somewhere keeps all", file: liveScript, suite: onPage("TestWhatSomebodyIsBusyWith"), says: `is as it was, want that it is new`,
			changes: []change{{`if (busy(old)) return false;`, `if (busy(main)) return false;`}},
		},
		{
			name: "live: what was let go stays old", file: liveScript, suite: onPage("TestWhatSomebodyIsBusyWith"), says: `what was let go is new|shows "what you are busy with`,
			changes: []change{{`if (kept) tag = "";`, ``}},
		},
		{
			name: "live: what has not changed is replaced", file: liveScript, suite: onPage("TestWhatHasNotChanged"), says: `got list false`,
			changes: []change{{`came.get(section).isEqualNode(came.get(old))`, `section.isEqualNode(old)`}},
		},
		{
			name: "live: another page is loaded", file: liveScript, suite: onPage("TestOtherSections"), says: `pages loaded, want 1`,
			changes: []change{{`main.replaceChildren(`, `location.replace(location.pathname + location.search); main.replaceChildren(`}},
		},
		{
			name: "live: what is written is lost to other sections", file: liveScript, suite: onPage("TestOtherSections"), says: `want what was written`,
			changes: []change{{`if (others && !busy(main))`, `if (others)`}},
		},
		{
			name: "live: the key r stays where the hash is", file: liveScript, suite: onPage("TestOtherSections"), says: `the key r loads`,
			changes: []change{{`location.replace(location.pathname + location.search), // with`, `location.replace(location.href), // with`}},
		},
		{
			name: "live: a form is sent as often as it is clicked on", file: liveScript, suite: onPage("TestAFormIsSentOnce"), says: `got the form \d+ times`,
			changes: []change{{`if (form.dataset.sent) {`, `if (form.dataset.sent === "never") {`}},
		},
		{
			name: "live: a new section has a form to send", file: liveScript, suite: onPage("TestAFormIsSentOnce"), says: `got the form \d+ times`,
			changes: []change{{`if (Date.now() - leaving < patience) return true;`, ``}},
		},
		{
			name: "live: a page that the browser has kept is left", file: liveScript, suite: onPage("TestAFormIsSentOnce"), says: `has kept is not live any more`,
			changes: []change{{`leaving = -Infinity; for`, `for`}},
		},
	}
}
