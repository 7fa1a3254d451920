package arch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// A seed is a small repository with one violation, so that every rule is known to be able to fail.
type seed struct {
	name  string
	rule  func(*tree) []string
	files map[string]string
	want  string // part of the only violation reported
}

func TestRulesReportViolations(t *testing.T) {
	t.Parallel()
	seeds := slices.Concat(importSeeds(), driverSeeds(), docSeeds(), sizeSeeds(), fileSeeds(), sqlSeeds(), nameSeeds(), sleepSeeds(),
		stateSeeds(), goroutineSeeds())
	for _, s := range seeds {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			got := s.rule(repository(t, s.files))
			if len(got) != 1 || !strings.Contains(got[0], s.want) {
				t.Errorf("got violations %q, want one with %q", got, s.want)
			}
		})
	}
}

func TestRulesAcceptWhatIsAllowed(t *testing.T) {
	t.Parallel()
	repo := repository(t, map[string]string{
		"bus/doc.go": "// Package bus is the vocabulary.\npackage bus\n",
		"bus/bus.go": "package bus\nimport \"errors\"\nvar ErrNone = errors.New(\"bus: none\")\nvar _ = ErrNone\n" +
			"var names = []string{\"a\"} // immutable\nfunc F() string {" + strings.Repeat("\n", 59) + "return \"selected rows\" }\n",
		"internal/store/doc.go": "// Package store is the SQL.\npackage store\n",
		"internal/store/store.go": "package store\nimport (\"embed\"; \"" + modulePath + "/bus\"; \"github.com/uptrace/bun/dialect\")\n" +
			"var files embed.FS\nvar (\n\t// tables is immutable.\n\ttables = bus.Names\n)\nconst pick = `SELECT 1`\nvar _ = dialect.PG\n",
		"otel/doc.go":         "// Package otel traces.\npackage otel\nimport _ \"go.opentelemetry.io/otel/semconv/v1.43.0\"\n",
		"otel/otel_test.go":   "package otel_test\nimport _ \"go.opentelemetry.io/otel/sdk/trace\"\nvar state int\nconst query = \"select 1\"\n",
		"otel/testdata/x.go":  "package util\nfunc init() {}\n",
		"examples/go.mod":     "module " + modulePath + "/examples\nrequire modernc.org/sqlite v1.60.1\n",
		"examples/go/main.go": "package main\nimport \"time\"\nfunc init() { time.Sleep(1) }\n",
	})
	for _, r := range rules() {
		for _, violation := range r.check(repo) {
			t.Errorf("%s: unexpected: %s", r.name, violation)
		}
	}
}

func goroutineSeeds() []seed {
	return []seed{
		{"a go statement", goroutines, map[string]string{"poison/a.go": "package poison\nfunc f(g func()) { go g() }\n"}, "poison/a.go:2"},
		{"a group", goroutines,
			map[string]string{"poison/a.go": "package poison\nimport \"sync\"\nfunc f(w *sync.WaitGroup, g func()) { w.Go(g) }\n"}, "poison/a.go:3"},
	}
}

// repository parses a made-up repository; it has a go.mod unless files bring one.
func repository(t *testing.T, files map[string]string) *tree {
	t.Helper()
	fsys := fstest.MapFS{"go.mod": {Data: []byte("module " + modulePath + "\n")}}
	for name, content := range files {
		fsys[name] = &fstest.MapFile{Data: []byte(content)}
	}
	repo, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return repo
}

func importSeeds() []seed {
	imports := func(pkg, target string) seed {
		file := "package p\nimport _ \"" + strings.Replace(target, "./", modulePath+"/", 1) + "\"\n"
		want := pkg + "/file.go:2: " + pkg + " may not import " + strings.Replace(target, "./", modulePath+"/", 1)
		return seed{pkg + " imports " + target, importLaw, map[string]string{pkg + "/file.go": file}, want}
	}
	return []seed{
		imports("bus", "github.com/uptrace/bun"),
		imports("bus", "./internal/store"),
		imports("middleware", "./outbox"),
		imports("middleware", "github.com/uptrace/bun"),
		imports("outbox", "./schedule"),
		imports("outbox", "./poison"),
		imports("outbox", "./internal/store/storetest"),
		imports("outbox", "github.com/uptrace/bun/dialect/pgdialect"),
		imports("schedule", "./outbox"),
		imports("schedule", "./poison"),
		imports("schedule/cron", "./bus"),
		imports("poison", "./schedule"),
		imports("otel", "go.opentelemetry.io/otel/sdk/trace"),
		imports("otel", "go.opentelemetry.io/otel/exporters/stdout/stdouttrace"),
		imports("otel", "./internal/store"),
		imports("fxmodule", "github.com/cenkalti/backoff/v4"),
		imports("bustest", "go.uber.org/fx"),
		imports("bustest", "./internal/outage"),
		imports("bustest", "modernc.org/sqlite"),
		imports("eventlog/projection", "./outbox"),
		imports("internal/store", "./outbox"),
		imports("internal/store/dialect", "./internal/store/postgres"),
		imports("internal/store/postgres", "./internal/store/sqlite"),
		imports("internal/store/sqlite", "./internal/store"),
		imports("internal/store", "github.com/uptrace/bun/driver/pgdriver"),
		imports("internal/store/storetest", "github.com/jackc/pgx/v5/stdlib"),
		imports("examples/quickstart", "./internal/store"),
		{"a package the law does not name", importLaw, map[string]string{"ferry/ferry.go": "package ferry\n"}, "ferry is not in the import law"},
		{"a package below one the law names", importLaw, map[string]string{"outbox/sub/sub.go": "package sub\n"},
			"outbox/sub is not in the import law"},
	}
}

func driverSeeds() []seed {
	requires := func(line string) map[string]string {
		return map[string]string{"go.mod": "module " + modulePath + "\n\nrequire (\n\tgithub.com/uptrace/bun v1.3.0\n" + line + "\n)\n"}
	}
	return []seed{
		{"pgx in go.mod", noDrivers, requires("\tgithub.com/jackc/pgx/v5 v5.12.0"),
			"go.mod:5: the root module may not require the database driver github.com/jackc/pgx/v5"},
		{"an indirect driver in go.mod", noDrivers, requires("\tmodernc.org/sqlite v1.60.1 // indirect"), "modernc.org/sqlite"},
		{"two versions of a dependency", oneVersion, map[string]string{"otel/go.mod": "module m\nrequire a.b/c v1.0.0\n",
			"poison/go.mod": "module m\nrequire (\n\ta.b/c v1.0.1 // indirect\n)\n"}, "poison/go.mod: a.b/c has version v1.0.1"},
		{"a file for one platform", portable, map[string]string{"bus/a.go": "//go:build linux\n\npackage bus\n"}, "bus/a.go:1"},
		{"a system call", portable, map[string]string{"bus/a.go": "package bus\nimport _ \"syscall\"\n"}, "bus/a.go:2"},
		{"bun's own driver in go.mod", noDrivers, requires("\tgithub.com/uptrace/bun/driver/pgdriver v1.3.0"), "bun/driver/pgdriver"},
	}
}

func docSeeds() []seed {
	return []seed{
		{"no doc.go", docFiles, map[string]string{"bus/bus.go": "package bus\n"}, "bus/doc.go: every package has this file"},
		{"a doc.go without a comment", docFiles,
			map[string]string{"bus/doc.go": "package bus // it may import nothing\n\n// Package bus may import.\nconst X = 1\n"},
			"with a package comment"},
		{"a comment that starts otherwise", docFiles, map[string]string{"bus/doc.go": "// The bus.\npackage bus\n"},
			`must start with "Package bus "`},
	}
}

func sizeSeeds() []seed {
	empty := func(lines int) string { return strings.Repeat("\n", lines) }
	return []seed{
		{"a file of 401 lines", sizes, map[string]string{"bus/bus.go": "package bus\n" + empty(400)}, "bus/bus.go: 401 lines"},
		{"a file of 401 lines that only mentions a generator", sizes,
			map[string]string{"bus/bus.go": "package bus\n\n// Code generated by x.\n" + empty(400)}, "bus/bus.go: 403 lines"},
		{"a line of 141 columns", columns, map[string]string{"bus/bus.go": "package bus\n\n//" + strings.Repeat("x", 139) + "\n"},
			"bus/bus.go:3: the line has more than 140"},
		{"a line of 141 columns in a test", columns,
			map[string]string{"bus/bus_test.go": "package bus\n\n//" + strings.Repeat("x", 139) + "\n"}, "bus/bus_test.go:3: the line has"},
		{"a line of 141 columns in another module", columns, map[string]string{
			"integration/go.mod": "module m\n", "integration/x/x.go": "package x\n\n//" + strings.Repeat("x", 139) + "\n",
		}, "integration/x/x.go:3: the line has"},
		{"a function of 61 lines", sizes, map[string]string{"bus/bus.go": "package bus\nfunc Long() {" + empty(60) + "}\n"},
			"bus.go:2: Long has 61 lines"},
		{"a function literal of 61 lines", sizes, map[string]string{"bus/bus.go": "package bus\nvar _ = func() {" + empty(60) + "}\n"},
			"function literal has 61 lines"},
		{"another module's long function", sizes, map[string]string{
			"integration/go.mod":  "module m\n",
			"integration/kill.go": "package integration\nfunc (T) Kill() {" + empty(60) + "}\n",
		}, "integration/kill.go:2: Kill has 61 lines"},
	}
}

func fileSeeds() []seed {
	return []seed{{"a built tool", noLargeFiles, map[string]string{"goimports": strings.Repeat("x", maxBytes+1)},
		"goimports has more than 1 MiB"}}
}

func sqlSeeds() []seed {
	query := func(literal string) map[string]string {
		return map[string]string{"outbox/claim.go": "package outbox\n\nconst query = " + literal + "\n"}
	}
	return []seed{
		{"a SELECT outside the store", sqlInStore, query(`"SELECT 1"`), "outbox/claim.go:3: SQL outside internal/store"},
		{"an UPDATE outside the store", sqlInStore, query("`\n\tupdate message_claims set owner = ?`"), "SQL outside"},
		{"a transaction that begins elsewhere", ownTransactions,
			map[string]string{"relay/x.go": "package relay\n\nfunc f(db pool) { db.RunInTx(nil) }\n"}, "relay/x.go:3: RunInTx"},
		{"a database's name outside its package", databaseNames,
			map[string]string{"internal/store/x.go": "package store\nfunc pgTime() {}\n"}, "pgTime names a database"},
		{"SQL of the command outside its one file", sqlInStore, map[string]string{
			"cmd/asyncmonolith/go.mod": "module m\n", "cmd/asyncmonolith/internal/demo/past.go": "package demo\nconst q = `SELECT 1`\n",
			"cmd/asyncmonolith/top.go": "package main\n\nconst q = `SELECT 1`\n",
		}, "cmd/asyncmonolith/top.go:3: SQL outside"},
		{"a CTE outside the store", sqlInStore, query(`"with held as (delete)"`), "SQL outside"},
	}
}

func nameSeeds() []seed {
	return []seed{
		{"a package named otherwise than its directory", packageNames, map[string]string{"outbox/outbox.go": "package box\n"},
			"package box must be named outbox"},
		{"a root package of another name", packageNames, map[string]string{"doc.go": "package outbox\n"}, "must be named asyncmonolith"},
		{"a package named util", packageNames, map[string]string{"internal/util/util.go": "package util\n"}, `"util" says nothing`},
		{"a directory named pkg", packageNames, map[string]string{"pkg/bus/bus.go": "package bus\n"}, `"pkg" says nothing`},
	}
}

func sleepSeeds() []seed {
	const sleeps = "package p\nimport \"time\"\nfunc f() { time.Sleep(1) }\n"
	return []seed{
		{"a comment about nobody", words, map[string]string{"bus/bus.go": "package bus\n\n// X is for nobody.\nconst X = 1\n"},
			`"nobody": say which program`},
		{"an error about somebody", words, map[string]string{"internal/txn/x.go": "package txn\n\nconst x = \"Somebody has it\"\n"},
			`"Somebody": say which program`},
		{"a type in five files", methods, inFiles(5), "bus.T has 5 methods in 5 files, at most 40 in 4 are allowed"},
		{"code that sleeps", noSleep, map[string]string{"outbox/loop.go": sleeps}, "outbox/loop.go:3: time.Sleep"},
		{"a test that sleeps", noSleep, map[string]string{"outbox/loop_test.go": sleeps}, "time.Sleep"},
		{"a sleep under another name", noSleep,
			map[string]string{"outbox/loop.go": "package p\nimport clock \"time\"\nvar pause = clock.Sleep\n"}, "time.Sleep"},
		{"an example's test that sleeps", noSleep, map[string]string{"examples/go.mod": "module m\n", "examples/main_test.go": sleeps},
			"time.Sleep"},
	}
}

func stateSeeds() []seed {
	code := func(text string) map[string]string {
		return map[string]string{"bus/bus.go": "package bus\n" + text + "\n"}
	}
	return []seed{
		{"an init function", noState, code("func init() {}"), "bus/bus.go:2: init function"},
		{"a package variable", noState, code("var registry = map[string]int{}"), "package variable registry"},
		{"a variable that only sounds like an error", noState, code("var errands int"), "package variable errands"},
		{"one of a group", noState, code("var (\n\tErrA = F()\n\tcache F // immutable\n\tcount int // is mutable\n)"),
			"bus.go:5: package variable count"},
	}
}

// inFiles is a type with a method in each of n files.
func inFiles(n int) map[string]string {
	files := map[string]string{"bus/t.go": "package bus\n\ntype T struct{}\n"}
	for i := range n {
		files[fmt.Sprintf("bus/t%d.go", i)] = fmt.Sprintf("package bus\n\nfunc (T) M%d() {}\n", i)
	}
	return files
}
