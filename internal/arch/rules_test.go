package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// docFiles asks of every package of the root module a doc.go whose comment says what the package is.
func docFiles(t *tree) []string {
	docs := map[string]*ast.File{} // by package directory, nil where there is none
	for _, s := range t.sources {
		if s.module != "." {
			continue
		}
		doc := docs[s.dir]
		if path.Base(s.path) == "doc.go" {
			doc = s.file
		}
		docs[s.dir] = doc
	}
	var violations []string
	for dir, doc := range docs {
		name := path.Join(dir, "doc.go")
		if doc == nil || doc.Doc == nil {
			violations = append(violations, name+": every package has this file, with a package comment")
			continue
		}
		comment := strings.Join(strings.Fields(doc.Doc.Text()), " ")
		if start := "Package " + doc.Name.Name + " "; !strings.HasPrefix(comment, start) {
			violations = append(violations, fmt.Sprintf("%s: the package comment must start with %q", name, start))
		}
	}
	slices.Sort(violations)
	return violations
}

const (
	maxFileLines     = 400
	maxFunctionLines = 60
	maxColumns       = 140
	maxBytes         = 1 << 20
)

// noLargeFiles wants no file to be larger than the largest picture: a larger one was built here, and is not source.
func noLargeFiles(t *tree) []string {
	var violations []string
	for _, name := range t.large {
		violations = append(violations, name+" has more than 1 MiB: built programs and data do not belong in the repository")
	}
	return violations
}

// columns wants lines to be short, except those of a raw string: SQL stands in such. In tests any long string will do.
func columns(t *tree) []string {
	var violations []string
	for _, s := range t.sources {
		if ast.IsGenerated(s.file) {
			continue
		}
		raw, proof := make(map[int]bool), s.test || matches(s.module, []string{"integration/..."})
		ast.Inspect(s.file, func(node ast.Node) bool {
			literal, ok := node.(*ast.BasicLit)
			if ok && (strings.HasPrefix(literal.Value, "`") || proof && len(literal.Value) > maxColumns/4) {
				for line := t.fset.Position(literal.Pos()).Line; line <= t.fset.Position(literal.End()).Line; line++ {
					raw[line] = true
				}
			}
			return true
		})
		for _, comments := range s.file.Comments { // what an example prints is one line
			for _, c := range comments.List {
				line := t.fset.Position(c.Pos()).Line
				raw[line] = raw[line] || proof && strings.HasPrefix(c.Text, "// level=")
			}
		}
		for _, line := range s.long {
			if !raw[line] {
				violations = append(violations, fmt.Sprintf("%s:%d: the line has more than %d columns", s.path, line, maxColumns))
			}
		}
	}
	return violations
}

// sizes wants files and functions to be short, except in tests and in files that a tool has generated.
func sizes(t *tree) []string {
	var violations []string
	for _, s := range t.sources {
		if s.test || ast.IsGenerated(s.file) {
			continue
		}
		if s.lines > maxFileLines {
			violations = append(violations, fmt.Sprintf("%s: %d lines, at most %d are allowed", s.path, s.lines, maxFileLines))
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			name := "function literal"
			switch n := node.(type) {
			case *ast.FuncDecl:
				name = n.Name.Name
			case *ast.FuncLit:
			default:
				return true
			}
			lines := t.fset.Position(node.End()).Line - t.fset.Position(node.Pos()).Line + 1
			if lines > maxFunctionLines {
				violations = append(violations, t.at(node, "%s has %d lines, at most %d are allowed", name, lines, maxFunctionLines))
			}
			return false // a literal inside it is shorter
		})
	}
	return violations
}

func sqlInStore(t *tree) []string {
	statement := regexp.MustCompile(`(?i)^\s*(select|insert into|update \w+ set|delete from|create table|alter table|with \w+ as)\b`)
	var violations []string
	for _, s := range t.sources {
		const command, demo = "cmd/asyncmonolith", "cmd/asyncmonolith/internal/demo/past.go" // which says why
		if s.test || s.path == demo || s.module != "." && s.module != command ||
			matches(s.dir, []string{"internal/store/...", "internal/txn"}) { // txn knows no tables
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			literal, ok := node.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			if text, _ := strconv.Unquote(literal.Value); statement.MatchString(text) {
				violations = append(violations, t.at(literal, "SQL outside internal/store: %.40q", text))
			}
			return true
		})
	}
	return violations
}

// ownTransactions wants transactions of the library's own to begin in internal/txn, where the server is told to end them
// when their client stands still.
func ownTransactions(t *tree) []string {
	allowed := map[string]string{
		"outbox/run_in_tx.go":             "for the application's function",
		"eventlog/log.go":                 "for the application's function",
		"eventlog/decider/decider.go":     "calls that",
		"bustest/fake_producer.go":        "for the application's function",
		"internal/store/read_timeout.go":  "bounded by its first statement",
		"internal/store/sqlite/sqlite.go": "a database without a server",
		"internal/store/sqlite/setup.go":  "a database without a server",
	}
	var violations []string
	for _, s := range t.sources {
		if s.test || s.module != "." || allowed[s.path] != "" || matches(s.dir, []string{"internal/txn", "internal/store/storetest"}) {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			if call, ok := node.(*ast.SelectorExpr); ok && (call.Sel.Name == "RunInTx" || call.Sel.Name == "BeginTx") {
				violations = append(violations, t.at(call, "%s: transactions of the library's own begin with txn.InTx or txn.RunOwn", call.Sel.Name))
			}
			return true
		})
	}
	return violations
}

// goroutines wants each to be started where it is known what runs on it: a function of the application, which may panic or never
// return, goes through internal/isolate.
func goroutines(t *tree) []string {
	allowed := map[string]string{
		"eventlog/projection/dispatcher.go":    "shards, whose handlers are isolated",
		"fxmodule/lifecycle.go":                "Run of the library's own parts",
		"internal/heartbeat/heartbeat.go":      "reports",
		"notify/listen.go":                     "checks of a connection",
		"notify/notifier.go":                   "the library's own loops",
		"ops/apply.go":                         "the lease of an operation",
		"ops/runner.go":                        "operations, whose Reset is isolated",
		"internal/engine/consume_tx.go":        "the return of a connection that an abandoned consumer uses",
		"internal/engine/run.go":               "the library's own loops",
		"internal/engine/rescan.go":            "sweeps",
		"internal/engine/worker.go":            "messages, whose consumers are isolated",
		"broker/internal/adapter/reconnect.go": "connections to brokers",
		"relay/dispatcher.go":                  "shards, whose publishers are isolated",
		"inbox/subscription.go":                "the renewal of a lease; the subscriber is isolated",
		"inbox/runner.go":                      "receivers, whose functions are isolated",
		"schedule/processor.go":                "the library's own loops",
	}
	var violations []string
	for _, s := range t.sources {
		if s.test || s.module != "." || allowed[s.path] != "" ||
			matches(s.dir, []string{"internal/isolate", "internal/store/storetest", "broker/brokertest"}) {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			switch n := node.(type) {
			case *ast.GoStmt:
				violations = append(violations, t.at(n, "a goroutine of its own: what the application wrote goes through internal/isolate"))
			case *ast.CallExpr:
				if call, ok := n.Fun.(*ast.SelectorExpr); ok && call.Sel.Name == "Go" {
					violations = append(violations, t.at(n, "a goroutine of its own: what the application wrote goes through internal/isolate"))
				}
			}
			return true
		})
	}
	return violations
}

// packageNames wants package names that say something, equal to the directory's in the root module.
func packageNames(t *tree) []string {
	meaningless := []string{"util", "utils", "common", "helper", "helpers", "types", "models", "pkg", "src"}
	seen := map[string]bool{}
	var violations []string
	for _, s := range t.sources {
		name := s.file.Name.Name
		if s.test || seen[s.dir+" "+name] {
			continue
		}
		seen[s.dir+" "+name] = true
		for _, part := range append(strings.Split(s.dir, "/"), name) {
			if slices.Contains(meaningless, part) {
				violations = append(violations, t.at(s.file.Name, "%q says nothing as a package name: use a noun for what is inside", part))
				break
			}
		}
		want := path.Base(s.dir)
		if s.dir == "." {
			want = "asyncmonolith"
		}
		if s.module == "." && name != want {
			violations = append(violations, t.at(s.file.Name, "package %s must be named %s", name, want))
		}
	}
	return violations
}

// noSleep forbids time.Sleep, in tests too: wait for the event itself. Examples may sleep.
func noSleep(t *tree) []string {
	var violations []string
	for _, s := range t.sources {
		if s.module == "examples" && !s.test {
			continue
		}
		name := importName(s.file, "time")
		ast.Inspect(s.file, func(node ast.Node) bool {
			selector, ok := node.(*ast.SelectorExpr)
			if !ok || selector.Sel.Name != "Sleep" {
				return true
			}
			if from, ok := selector.X.(*ast.Ident); ok && from.Name == name {
				violations = append(violations, t.at(node, "time.Sleep: wait for the event, a timer or the context instead"))
			}
			return true
		})
	}
	return violations
}

// importName returns the name by which a file refers to an imported package, "" when it does not.
func importName(file *ast.File, importPath string) string {
	for _, spec := range file.Imports {
		if target, _ := strconv.Unquote(spec.Path.Value); target != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

func noState(t *tree) []string {
	var violations []string
	for _, s := range t.shipped() {
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					violations = append(violations, t.at(d, "init function: let the caller do it"))
				}
			case *ast.GenDecl:
				violations = append(violations, mutableVars(t, d)...)
			}
		}
	}
	return violations
}

// mutableVars reports the variables of a declaration that are not plainly constant: error sentinels,
// embedded files, assertions (var _ = ...), and what a comment calls immutable. Parts of a program that
// share only a connection pool find each other in renewalConns.
func mutableVars(t *tree, decl *ast.GenDecl) []string {
	if decl.Tok != token.VAR || saysImmutable(decl.Doc) {
		return nil
	}
	sentinel := regexp.MustCompile(`^[Ee]rr([A-Z]|$)`)
	var violations []string
	for _, spec := range decl.Specs {
		value := spec.(*ast.ValueSpec)
		if saysImmutable(value.Doc) || saysImmutable(value.Comment) || isEmbedFS(value.Type) {
			continue
		}
		for _, name := range value.Names {
			if name.Name != "_" && name.Name != "renewalConns" && !sentinel.MatchString(name.Name) {
				violations = append(violations, t.at(name, "package variable %s: pass it in, or say why it is immutable in its comment", name.Name))
			}
		}
	}
	return violations
}

func saysImmutable(comment *ast.CommentGroup) bool {
	return regexp.MustCompile(`(?i)\bimmutable\b`).MatchString(comment.Text())
}

func isEmbedFS(expr ast.Expr) bool {
	selector, ok := expr.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != "FS" {
		return false
	}
	from, ok := selector.X.(*ast.Ident)
	return ok && from.Name == "embed"
}

// databaseNames lets only a database's own package, and dberr, which knows the drivers, have names that
// name it: everything else is written for all of them.
func databaseNames(t *tree) []string {
	named := regexp.MustCompile(`(?i)postgres|sqlite|maria|mysql|^pg[A-Z]`)
	var violations []string
	for _, s := range t.shipped() {
		if matches(s.dir, []string{"internal/store/postgres", "internal/store/sqlite", "internal/store/mariadb", "internal/dberr",
			"notify/..."}) {
			continue
		}
		for _, name := range declared(s.file) {
			if named.MatchString(name.Name) {
				violations = append(violations, t.at(name, "%s names a database: that is for its own package below internal/store", name.Name))
			}
		}
	}
	return violations
}

// declared lists what a file declares, at whatever level.
func declared(f *ast.File) (names []*ast.Ident) {
	ast.Inspect(f, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		}
		return true
	})
	return names
}
