package arch_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestReference compares docs/reference/settings.md and docs/reference/states.md with the comments of the code.
func TestReference(t *testing.T) {
	t.Parallel()
	repo, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"settings": settingsPage(repo), "states": statesPage(repo)} {
		file := "../../docs/reference/" + name + ".md"
		if *update {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		if string(got) != want {
			t.Errorf("%s is out of date: go test ./internal/arch -run TestReference -update", file)
		}
	}
}

func TestReferenceRows(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		"Wait is the wait. Defaults to 1 s.":        "| `Wait` | `int` | 1 s | Wait is the wait. |",
		"Wait is the wait. Defaults to a | b. More": "| `Wait` | `int` | | Wait is the wait. Defaults to a \\| b. More |",
		"Wait is that of [Run.Wait], [1, 2].":       "| `Wait` | `int` | | Wait is that of `Run.Wait`, [1, 2]. |",
	} {
		if got := settingRow("Wait", "int", doc); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

const generated = "Generated from the comments of the code: `go test ./internal/arch -run TestReference -update`.\n\n"

// settingsPage lists the fields of each exported struct that configures something.
func settingsPage(t *tree) string {
	var sections []string
	eachType(t, func(s source, spec *ast.TypeSpec, doc string) {
		fields, ok := spec.Type.(*ast.StructType)
		if !ok || !spec.Name.IsExported() || !regexp.MustCompile(`(Config|Options)$|^Tables$`).MatchString(spec.Name.Name) {
			return
		}
		var b strings.Builder
		fmt.Fprintf(&b, "## %s.%s\n\n`import \"%s\"`\n\n%s\n\n| Field | Type | Default | |\n|---|---|---|---|\n",
			s.file.Name.Name, spec.Name.Name, path.Join(modulePath, s.dir), line(doc))
		above := "" // the field that has the comment of a group
		for _, field := range fields.Fields.List {
			for _, name := range field.Names {
				doc := field.Doc.Text()
				if doc == "" {
					doc = "See [" + above + "]."
				} else {
					above = name.Name
				}
				if name.IsExported() {
					b.WriteString(settingRow(name.Name, rendered(field.Type), doc) + "\n")
				}
			}
		}
		sections = append(sections, b.String())
	})
	slices.Sort(sections)
	return "# Settings\n\n" + generated + "Durations are `time.Duration`. A zero field means its default.\n\n" + strings.Join(sections, "\n")
}

// settingRow is a field's row. A default that ends the comment has a column of its own.
func settingRow(name, kind, doc string) string {
	text, value := line(doc), ""
	if i := strings.LastIndex(text, " Defaults to "); i >= 0 && strings.HasSuffix(text, ".") {
		value, text = " "+strings.TrimSuffix(text[i+len(" Defaults to "):], "."), text[:i]
	}
	return fmt.Sprintf("| `%s` | `%s` |%s | %s |", name, kind, value, text)
}

// statesPage lists the constants of the types that say how something is.
func statesPage(t *tree) string {
	shown := map[string]string{}
	values, texts := constants(t)
	eachType(t, func(s source, spec *ast.TypeSpec, doc string) {
		name := s.file.Name.Name + "." + spec.Name.Name
		if len(values[name]) == 0 {
			return
		}
		rows := strings.Join(values[name], "\n")
		_, more, _ := strings.Cut(texts[name], ". ") // after "The states of x."
		shown[name] = fmt.Sprintf("## %s\n\n%s\n\n| Value | Constant | |\n|---|---|---|\n%s\n",
			name, strings.TrimSpace(line(doc)+" "+more), rows)
	})
	page := "# States\n\n" + generated + "The values are those of JSON, tables, metrics and logs.\n"
	for _, name := range []string{"admin.State", "bus.Outcome", "admin.ProcessStatus", "admin.StopResult", "ops.OperationState",
		"ops.Severity"} {
		page += "\n" + shown[name]
	}
	return page
}

// constants returns the rows of typed constants, and the comment of their block, by the name of the type.
func constants(t *tree) (rows map[string][]string, texts map[string]string) {
	rows, texts = map[string][]string{}, map[string]string{}
	literals := map[string]string{} // values by the constant's name with its package
	eachConstant(t, func(name string, _ *ast.GenDecl, v *ast.ValueSpec, _ string) {
		if len(v.Values) != 1 {
			return
		}
		if literal, ok := v.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
			literals[name], _ = strconv.Unquote(literal.Value)
		}
	})
	eachConstant(t, func(name string, block *ast.GenDecl, v *ast.ValueSpec, kind string) {
		value := literals[name]
		if value == "" && len(v.Values) == 1 {
			value = literals[rendered(v.Values[0])] // that of another package
		}
		constant, doc := v.Names[0].Name, line(v.Doc.Text()+v.Comment.Text())
		if m := regexp.MustCompile(` Its text is "(\w+)"\.`).FindStringSubmatch(doc); m != nil {
			value, doc = m[1], strings.Replace(doc, m[0], "", 1)
		}
		value = cmp.Or(value, strings.ToLower(constant)) // an outcome's, by its String method
		rows[kind] = append(rows[kind], fmt.Sprintf("| `%s` | `%s` | %s |", value, constant, withoutName(constant, doc)))
		texts[kind] = line(block.Doc.Text())
	})
	return rows, texts
}

// eachConstant calls f with each constant, its name with its package, and the name of its type with the package, if any.
func eachConstant(t *tree, f func(name string, block *ast.GenDecl, v *ast.ValueSpec, kind string)) {
	for _, s := range t.shipped() {
		pkg := s.file.Name.Name + "."
		for _, decl := range s.file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST {
				continue
			}
			kind := ""
			for _, spec := range d.Specs {
				v := spec.(*ast.ValueSpec)
				if v.Type != nil {
					kind = pkg + rendered(v.Type)
				}
				f(pkg+v.Names[0].Name, d, v, kind)
			}
		}
	}
}

// withoutName removes the constant's name from the beginning of its comment.
func withoutName(name, doc string) string {
	for _, after := range []string{": ", " means that "} {
		doc = strings.TrimPrefix(doc, name+after)
	}
	return doc
}

// eachType calls f with each type of the packages for users and its comment.
func eachType(t *tree, f func(s source, spec *ast.TypeSpec, doc string)) {
	for _, s := range t.sources {
		ours := s.module == "." || strings.HasPrefix(s.module, "broker/")
		if !ours || s.test || strings.Contains(s.dir+"/", "internal/") || s.file.Name.Name == "main" {
			continue
		}
		for _, decl := range s.file.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok || d.Tok != token.TYPE {
				continue
			}
			for _, spec := range d.Specs {
				ts := spec.(*ast.TypeSpec)
				doc := ts.Doc.Text()
				if doc == "" {
					doc = d.Doc.Text()
				}
				f(s, ts, doc)
			}
		}
	}
}

// line is a comment in one line of Markdown.
func line(doc string) string {
	doc = strings.Join(strings.Fields(doc), " ")
	doc = regexp.MustCompile(`\[([A-Za-z][\w.]*)\]`).ReplaceAllString(doc, "`$1`")
	return strings.NewReplacer("|", `\|`, "*", `\*`).Replace(doc)
}
