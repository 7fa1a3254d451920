//go:build unix

package main

// watchMutants are mistakes of what people watch, and of what there is to watch in a demo.
func watchMutants() []mutant {
	const in = "cmd/asyncmonolith/internal/top/"
	top := func(test string) suite {
		return suite{pkg: "./cmd/asyncmonolith/internal/top", tests: "^" + test + "$"}
	}
	demo := func(test string) suite {
		return suite{pkg: "./cmd/asyncmonolith/internal/demo", tests: "^" + test + "$"}
	}
	return []mutant{
		{
			name: "top: a stored text commands the terminal", file: in + "text.go", suite: top("TestStoredTextsAreShownEscaped"), says: `\\x1b`,
			changes: []change{{"ansi.Truncate(show.Text(text), width", "ansi.Truncate(text, width"}},
		},
		{
			name: "top: an error tells a secret", file: in + "model.go", suite: top("TestPausing"), says: `forbidden by secret`,
			changes: []change{{"show.Text(m.Say(err))", "show.Text(err.Error())"}},
		},
		{
			name: "top: a pause is not confirmed", file: in + "ask.go", suite: top("TestPausing"), says: `got \["pause charge-card: b"\], want \[\]`,
			changes: []change{{`q.sure && pressed != "y":`, `q.sure && pressed == "n":`}},
		},
		{
			name: "top: a pause without a note", file: in + "ask.go", suite: top("TestPausing"), says: `got \["pause charge-card: "\], want \[\]`,
			changes: []change{{`q.sure = strings.TrimSpace(q.note) != ""`, `q.sure = true`}},
		},
		{
			name: "top: another consumer is chosen", file: in + "model.go", suite: top("TestTheChosenOneStays"), says: `got charge-card chosen|got import chosen`,
			changes: []change{{"if key == m.chosen[view] {", "if key == m.chosen[view] && i < 0 {"}},
		},
		{
			name: "top: keys are asked for with each look", file: in + "top.go", suite: top("TestKeysGoByThePaceOfTheOverview"), says: `asked 3 times`,
			changes: []change{{"if o.At.Equal(last.At) {", "if false {"}},
		},
		{
			name: "top: an overview of others is changed", file: in + "top.go", suite: top("TestKeysGoByThePaceOfTheOverview"), says: `of others has 2`,
			changes: []change{{"slices.Clone(o.Queues)", "slices.Grow(o.Queues, 0)"}},
		},
		{
			name: "top: an error hides what was known", file: in + "model.go", suite: top("TestTheDatabaseGoesAndComesBack"), says: `while it is away`,
			changes: []change{{"\t\tm.trouble = \"Not newer: \" + m.plain(err)\n", "\t\tm.trouble, m.queues = \"Not newer: \"+m.plain(err), nil\n"}},
		},
		{
			name: "top: an error ends the looks", file: in + "model.go", suite: top("TestTheDatabaseGoesAndComesBack"), says: `nobody looks again|nil pointer`,
			changes: []change{{"\t\treturn m, m.later()\n", "\t\tif msg.err == nil {\n\t\t\treturn m, m.later()\n\t\t}\n"}},
		},
		{
			name: "top: a line is wider than the screen", file: in + "view.go", suite: top("TestAnySizeAndKey"), says: `cells:`,
			changes: []change{{"ansi.Truncate(line, max(m.width, 1), \"\")", "ansi.Truncate(line, max(m.width, 1)+1, \"\")"}},
		},
		{
			name: "demo: another's file is replaced", file: "cmd/asyncmonolith/internal/demo/demo.go", suite: demo("TestOtherFilesAreLeftAlone"), says: `want ErrForeign`,
			changes: []change{{"string(head[markAt:]) != marked():", "string(head[markAt:]) != marked() && !force:"}},
		},
		{
			name: "demo: the shop goes on behind the command", file: "cmd/asyncmonolith/internal/demo/demo.go", suite: demo("TestAnotherShop"), says: `want stopped|is closed`,
			changes: []change{{"\t\tall.Wait()\n", ""}},
		},
	}
}
