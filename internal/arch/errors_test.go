package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestErrorsReference compares docs/reference/errors.md with the comments of errors and with the classes of package dberr.
func TestErrorsReference(t *testing.T) {
	t.Parallel()
	repo, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	const golden = "../../docs/reference/errors.md"
	got := errorsPage(repo)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(golden); err != nil || got != string(want) {
		t.Errorf("%v: docs/reference/errors.md is out of date: go test ./internal/arch -run TestErrorsReference -update", err)
	}
}

func TestErrorsPageHasErrorsAndCodes(t *testing.T) {
	t.Parallel()
	page := errorsPage(repository(t, map[string]string{
		"bus/errors.go": "package bus\n\n// ErrLate is returned\n// for a [Message] that is late.\nvar ErrLate = errors.New(\"late\")\n\n" +
			"// FailError has\n// the cause.\ntype FailError struct{}\n\nfunc (e FailError) Error() string { return \"\" }\n\ntype OnError int\n",
		"internal/dberr/class.go": "package dberr\n\nfunc classOfState(s string) Class {\n\tswitch s {\n\tcase \"40001\", killed:\n\t\treturn Conflict\n\t}\n" +
			"\tswitch s[:2] {\n\tcase \"22\":\n\t\treturn Refused\n\t}\n\treturn Other\n}\n\nconst killed = \"25P04\"\n",
	}))
	for _, want := range []string{
		"| `bus.ErrLate` | ErrLate is returned for a `Message` that is late. |\n", "| `bus.FailError` | FailError has the cause. |\n",
		"| conflict | 40001, 25P04 | | |\n", "| refused | 22 | | |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "OnError") {
		t.Errorf("the page has a type that is no error:\n%s", page)
	}
}

// errorsPage renders the reference of errors.
func errorsPage(t *tree) string {
	rows := errorRows(t)
	slices.Sort(rows)
	page := "# Errors\n\nGenerated from the code: `go test ./internal/arch -run TestErrorsReference -update`. [Errors](../errors.md) explains what follows from them.\n\n" +
		"## Exported errors\n\n| Error | |\n|---|---|\n" + strings.Join(rows, "") +
		"\n## Classes of database errors\n\nCodes of two characters are classes of SQLSTATE. A broken connection is unavailable. A statement without an answer in time is a timeout.\n\n" +
		"| Class | SQLSTATE (PostgreSQL, MariaDB) | MariaDB error | SQLite result |\n|---|---|---|---|\n"
	states, mysql, sqlite := classCodes(t, "classOfState"), classCodes(t, "classOfMySQL"), classCodes(t, "classOfSQLite")
	for _, class := range []string{"Conflict", "LockTimeout", "Timeout", "ReadOnly", "Exhausted", "Unavailable", "Refused", "Schema"} {
		cells := fmt.Sprintf("| %s | %s | %s | %s |\n", spaced(class), strings.Join(states[class], ", "), strings.Join(mysql[class], ", "),
			strings.Join(sqlite[class], ", "))
		page += strings.ReplaceAll(cells, "|  |", "| |")
	}
	return strings.ReplaceAll(page, "|  |", "| |")
}

// errorRows are the exported errors of public packages: variables whose name begins with Err, and types that end in Error.
func errorRows(t *tree) (rows []string) {
	row := func(s source, name, doc string) {
		text := regexp.MustCompile(`\[([\w.]+)\]`).ReplaceAllString(strings.Join(strings.Fields(doc), " "), "`$1`")
		rows = append(rows, fmt.Sprintf("| `%s.%s` | %s |\n", s.file.Name.Name, name, strings.ReplaceAll(text, "|", `\|`)))
	}
	methods := make(map[string]bool) // types that are errors, by their directory
	for _, s := range t.shipped() {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.Name == "Error" {
				methods[s.dir+"."+strings.TrimLeft(rendered(f.Recv.List[0].Type), "*")] = true
			}
		}
	}
	for _, s := range t.shipped() {
		if strings.Contains(s.dir+"/", "internal/") || strings.HasPrefix(s.dir, "examples") || s.file.Name.Name == "main" {
			continue
		}
		for _, decl := range s.file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range d.Specs {
				switch v := spec.(type) {
				case *ast.ValueSpec:
					if d.Tok == token.VAR && regexp.MustCompile(`^Err[A-Z]`).MatchString(v.Names[0].Name) {
						row(s, v.Names[0].Name, firstOf(v.Doc.Text(), d.Doc.Text()))
					}
				case *ast.TypeSpec:
					if v.Name.IsExported() && methods[s.dir+"."+v.Name.Name] {
						row(s, v.Name.Name, firstOf(v.Doc.Text(), d.Doc.Text()))
					}
				}
			}
		}
	}
	return rows
}

func firstOf(own, group string) string {
	if own != "" {
		return own
	}
	return group
}

// classCodes reads the cases of a function of package dberr, by the class that they return.
func classCodes(t *tree, function string) map[string][]string {
	values, codes := make(map[string]string), make(map[string][]string)
	var found *ast.FuncDecl
	for _, s := range t.sources {
		if s.dir != "internal/dberr" || s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.Name == function {
					found = d
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok && len(v.Names) == len(v.Values) {
						for i, name := range v.Names {
							values[name.Name] = rendered(v.Values[i])
						}
					}
				}
			}
		}
	}
	if found == nil {
		return codes
	}
	ast.Inspect(found, func(node ast.Node) bool {
		clause, ok := node.(*ast.CaseClause)
		if !ok || len(clause.Body) != 1 {
			return true
		}
		returned, ok := clause.Body[0].(*ast.ReturnStmt)
		if !ok {
			return true
		}
		for _, expr := range clause.List {
			code := rendered(expr)
			if value, ok := values[code]; ok && function == "classOfSQLite" {
				code = sqliteName(code, value)
			} else if ok {
				code = value
			}
			if text, err := strconv.Unquote(code); err == nil {
				code = text
			}
			if code != "" {
				codes[rendered(returned.Results[0])] = append(codes[rendered(returned.Results[0])], code)
			}
		}
		return true
	})
	return codes
}

// sqliteName is what SQLite calls a result: BUSY_SNAPSHOT for sqliteBusySnapshot.
func sqliteName(name, value string) string {
	name = strings.ToUpper(strings.TrimPrefix(strings.TrimPrefix(name, "sqlite"), "SQLite"))
	for short, official := range map[string]string{"IO": "IOERR", "NOMEMORY": "NOMEM", "BUSYSNAPSHOT": "BUSY_SNAPSHOT"} {
		if name == short {
			name = official
		}
	}
	return name + " (" + value + ")"
}

// spaced writes a class as logs do.
func spaced(class string) string {
	switch class {
	case "LockTimeout":
		return "lock timeout"
	case "ReadOnly":
		return "read-only"
	}
	return strings.ToLower(class)
}
