//go:build unix

package main

// markupMutants make markup, scripts or commands of what somebody has typed.
func markupMutants() []mutant {
	const pages = "console/template.go"
	texts := attack("14TextsAsMarkup")
	return []mutant{
		{
			name: "console: templates do not know HTML", file: pages, suite: texts, says: `which no page has of itself`,
			changes: []change{{`"html/template"`, `"text/template"`}},
			also:    map[string][]change{"console/console.go": {{`"html/template"`, `"text/template"`}}},
		},
		{
			name: "console: texts in lists are markup", file: pages, suite: texts, says: `which no page has of itself`,
			changes: []change{{`"short":    short,`, `"short":    func(text string) template.HTML { return template.HTML(short(text)) },`}},
		},
		{
			name: "console: payloads are markup", file: "console/message.go", suite: texts, says: `"message\?.*which no page has of itself`,
			changes: []change{
				{"\t\"fmt\"\n", "\t\"fmt\"\n\t\"html/template\"\n"}, {"Content        string ", "Content        template.HTML "},
				{"\tdata.Content, data.Binary = readable(data.Payload)\n", "\ttext, binary := readable(data.Payload)\n\tdata.Content, data.Binary = template.HTML(text), binary\n"},
			},
		},
		{
			name: "console: names are markup", file: pages, suite: texts, says: `which no page has of itself`,
			changes: []change{{`"takes":    takes,`, `"takes":    func(p outbox.Process) template.HTML { return template.HTML(takes(p)) },`}},
		},
		{
			name: "console: whatever stands for a trace is one", file: "console/message.go", suite: attack("15TracesAsScripts"), says: `trace ".*: got a link to`,
			changes: []change{{` || strings.Trim(parts[1], "0123456789abcdef") != ""`, ""}},
		},
		{
			name: "console: traces may be scripts", file: "console/console.go", suite: attack("15TracesAsScripts"), says: `TraceURL "javascript:`,
			changes: []change{{`err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||`, `err != nil || u.Scheme == "" ||`}},
		},
		{
			name: "console: quotes of a query are quotes of the page", file: "console/visit.go", suite: attack("16ParametersAsMarkup"), says: `which no page has of itself`,
			changes: []change{{"\th := v.w.Header()\n\th.Set(\"Content-Type\", \"text/html", "\tb = *bytes.NewBuffer(bytes.ReplaceAll(b.Bytes(), []byte(\"&#34;\"), []byte(`\"`)))\n\th := v.w.Header()\n\th.Set(\"Content-Type\", \"text/html"}},
		},
		{
			name: "console: a cookie says what it likes", file: "console/outcome.go", suite: suite{pkg: inConsole, tests: "^TestOutcomes$"}, says: `got "<b>", want ""`,
			changes: []change{{"\tif !strings.Contains(said, \"%s\") {\n", "\tif said == \"\" {\n\t\treturn o.code\n\t}\n\tif !strings.Contains(said, \"%s\") {\n"}},
		},
	}
}

// contentMutants show what is hidden, or have people guess it.
func contentMutants() []mutant {
	hidden := attack("22WhatIsHidden")
	return []mutant{
		{
			name: "console: what nobody says may be shown is shown", file: "ops/content.go", suite: hidden, says: `shows what is hidden`,
			changes: []change{{"\tif redact == nil || s.may", "\tif redact == nil {\n\t\tredact = ShowAll\n\t}\n\tif s.may"}},
		},
		{
			name: "console: viewers see contents", file: "ops/content.go", suite: hidden, says: `shows a content to a viewer`,
			changes: []change{{"redact == nil || s.may(Read, c.Consumer) != nil {", "redact == nil {"}},
		},
		{
			name: "console: exports have what is hidden", file: "ops/poisoned.go", suite: hidden, says: `its answer has what is hidden`,
			changes: []change{{"return fn(s.poisoned(ctx, m))\n\t\t})", "return fn(Poisoned{Message: m})\n\t\t})"}},
		},
		{
			name: "console: an edit begins with what is hidden", file: "ops/poisoned.go", suite: hidden, says: `shows what is hidden|its form has what is hidden`,
			changes: []change{{"\treturn Poisoned{Message: m, Hidden: !shown}", "\tif s.may(Edit, m.Consumer) == nil {\n\t\tm.Payload, shown = whole, true\n\t}\n\treturn Poisoned{Message: m, Hidden: !shown}"}, {"\tm.Reason = s.reason(ctx, m)\n\tm.Payload,", "\twhole := m.Payload\n\tm.Reason = s.reason(ctx, m)\n\tm.Payload,"}},
		},
		{
			name: "console: errors that are hidden can be guessed", file: "ops/content.go", suite: hidden, says: `somebody can guess what is hidden`,
			changes: []change{{"if len(part.Errors)+len(part.Headers) == 0 {", "if len(part.Headers) == 0 {"}},
		},
		{
			name: "console: headers that are hidden can be guessed", file: "ops/content.go", suite: hidden, says: `somebody can guess what is hidden`,
			changes: []change{{"if len(part.Errors)+len(part.Headers) == 0 {", "if len(part.Errors) == 0 {"}},
		},
		{
			name: "console: samples of errors are not redacted", file: "ops/poisoned.go", suite: hidden, says: `shows what is hidden`,
			changes: []change{{"groups[i].Failure = &f\n", "_, _ = i, f\n"}},
		},
		{
			name: "console: the log has contents", file: "ops/poisoned.go", suite: hidden, says: `the log has what is hidden`,
			changes: []change{{"\tm.Reason = s.reason(ctx, m)\n\tm.Payload,", "\ts.desk.config.Logger.Info(\"somebody looks\", \"payload\", string(m.Payload))\n\tm.Reason = s.reason(ctx, m)\n\tm.Payload,"}},
		},
	}
}

// aroundMutants have filters and ids find what they are not about.
func aroundMutants() []mutant {
	wild := attack("24Wildcards")
	tables := attack("25TablesOfOthers")
	return []mutant{
		{
			name: "console: texts of errors are patterns", file: "internal/store/poison.go", suite: wild, says: `error ".*: got \d+ messages, want`,
			changes: []change{{"({instr}(reason, ?) > 0 OR", "(reason LIKE '%' || ? || '%' OR"}},
		},
		{
			name: "console: names of consumers are patterns", file: "internal/store/poison.go", suite: wild, says: `consumer ".*: got \d+ messages, want none`,
			changes: []change{{`"consumer_type = ?", f.Consumer`, `"consumer_type LIKE ?", f.Consumer`}},
		},
		{
			name: "console: names of payload types are SQL", file: "internal/store/poison.go", suite: wild, says: `type ".*: got`,
			changes: []change{{`t.add(f.PayloadType != "", "payload_type = ?", f.PayloadType)`, `t.add(f.PayloadType != "", "payload_type = '"+f.PayloadType+"'")`}},
		},
		{
			name: "console: payload types of what waits are patterns", file: "internal/store/pending.go", suite: wild, says: `messages of type ".*: got some`,
			changes: []change{{`"m.payload_type = ?", f.PayloadType`, `"m.payload_type LIKE ?", f.PayloadType`}},
		},
		{
			name: "console: the desk has the tables without a prefix", file: "ops/desk.go", suite: tables, says: `want status 404|it shows what is another's|what is another's was changed`,
			changes: []change{{"d.store, err[0] = store.For(", "c.Registry, _ = bus.NewRegistry()\n\td.store, err[0] = store.For("}},
		},
		{
			name: "console: poisoned messages of all prefixes are one", file: "internal/store/poison.go", suite: tables, says: `message\?id=.*want status 404`,
			changes: []change{{"FROM {poisoned} WHERE id = ?`, characters", "FROM poisoned_messages WHERE id = ?`, characters"}},
		},
		{
			name: "console: operations of all prefixes are one", file: "internal/store/operations.go", suite: tables, says: `operation\?id=.*want status 404`,
			changes: []change{{"{now} AS now FROM {operations} WHERE", "{now} AS now FROM message_operations WHERE"}},
		},
	}
}

// terminalMutants have the command tell what it must not.
func terminalMutants() []mutant {
	const show = "cmd/asyncmonolith/internal/show/show.go"
	commands, secrets := attack("26TerminalCommands"), attack("27SecretsOfTheConnection")
	return []mutant{
		{
			name: "console: the command writes texts as they are", file: show, suite: commands, says: `which a terminal would act upon`,
			changes: []change{{"if utf8.ValidString(s) && !strings.ContainsFunc(s, unsafe) {", "if utf8.ValidString(s) || !strings.ContainsFunc(s, unsafe) {"}},
		},
		{
			name: "console: the command writes JSON as it is", file: show, suite: commands, says: `\[--json\]: got the character`,
			changes: []change{{"escaped(string(versioned))+", "string(versioned)+"}},
		},
		{
			name: "console: the command complains in the words of others", file: "cmd/asyncmonolith/errors.go", suite: commands, says: `which a terminal would act upon`,
			changes: []change{{"show.Text(a.secret.Scrub(fmt.Sprintf(format, args...)))", "show.Value(a.secret.Scrub(fmt.Sprintf(format, args...)))"}},
		},
		{
			name: "console: errors of the database are shown", file: "console/visit.go", suite: secrets, says: `which tells of the connection`,
			changes: []change{{"\"The database could not be asked, or something else went wrong. The log of this process says what.\"", "err.Error()"}},
		},
		{
			name: "console: the command shows errors of the connection", file: "cmd/asyncmonolith/internal/connect/trouble.go", suite: secrets, says: `want an error that does not tell of the connection`,
			changes: []change{{"cannot be reached: \" + cause(err)", "cannot be reached: \" + err.Error()"}},
		},
		{
			name: "console: the command takes a password that all can see", file: "cmd/asyncmonolith/root.go", suite: secrets, says: `want that a password is not taken there`,
			changes: []change{{"connect.Secret(a.dsn).HasPassword():", "!connect.Secret(a.dsn).HasPassword() && a.dsn == \"-\":"}},
		},
		{
			name: "console: the command says where it is connected", file: "cmd/asyncmonolith/serve.go", suite: secrets, says: `serve: got "`,
			changes: []change{{`map[string]string{"url": d.link(), "role": role.String()}`, `map[string]string{"url": d.link(), "role": role.String(), "database": string(a.secret)}`}},
		},
	}
}
