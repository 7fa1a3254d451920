package arch_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata/api.txt or docs/contributing/promises.md anew")

// TestAPI compares what users can name with testdata/api.txt, so that a change to it is seen in review.
func TestAPI(t *testing.T) {
	t.Parallel()
	repo, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/api.txt"
	got := api(repo)
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for _, line := range was {
		if !slices.Contains(is, line) {
			t.Errorf("gone: %s", line)
		}
	}
	for _, line := range is {
		if !slices.Contains(was, line) {
			t.Errorf("new: %s", line)
		}
	}
	if t.Failed() {
		t.Log("if that is meant, say it in CHANGELOG.md, and: go test ./internal/arch -run TestAPI -update")
	}
}

// TestGuidesNameWhatThereIs finds names of the library in the guides that it does not have.
func TestGuidesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	repo, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	guides, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(guides) == 0 {
		t.Fatalf("guides: got %v and %v, want some", guides, err)
	}
	deeper, err := filepath.Glob("../../docs/[br]*/*.md") // brokers and reference
	if err != nil || len(deeper) == 0 {
		t.Fatalf("pages of brokers and the reference: got %v and %v, want some", deeper, err)
	}
	guides = append(guides, deeper...)
	known := namesOf(api(repo))
	for _, guide := range append(guides, "../../README.md", "../../ARCHITECTURE.md") {
		text, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range unknownNames(string(text), known) {
			t.Errorf("%s names %s, which there is not", filepath.Base(guide), name)
		}
	}
}

func TestUnknownNamesAreFound(t *testing.T) {
	t.Parallel()
	known := map[string]bool{"bus.Event": true, "bus.Event.Replay": true, "otel.NewTelemetry": true}
	text := "`bus.Event.Replay`, amotel.NewTelemetry and otel.GetMeterProvider are there; bus.Mode, bus.Event.Mode and amotel.New are not"
	if got := unknownNames(text, known); !slices.Equal(got, []string{"bus.Mode", "bus.Event.Mode", "amotel.New"}) {
		t.Errorf("got %q, want the three", got)
	}
}

// namesOf is what an api names, with the package before it.
func namesOf(api string) map[string]bool {
	known := make(map[string]bool)
	pkg := ""
	for line := range strings.Lines(api) {
		if !strings.HasPrefix(line, " ") {
			dir, _, _ := strings.Cut(line, ":")
			pkg = path.Base(dir)
			continue
		}
		name := regexp.MustCompile(`^[\w.]+`).FindString(strings.Fields(line)[1])
		known[pkg+"."+name] = true
	}
	return known
}

// unknownNames returns the qualified names of a text that are not known. OpenTelemetry's
// package has the name of ours, which is amotel in the guides, and Watermill has a
// middleware, too.
func unknownNames(text string, known map[string]bool) (unknown []string) {
	const packages = "admin|amotel|broker|bus|bustest|console|cron|decider|eventlog|fxmodule|inbox|middleware|notify|ops|outbox|poison|" +
		"projection|relay|schedule"
	qualified := regexp.MustCompile(`\b(` + packages + `)(\.[A-Z]\w*){1,2}`)
	for _, name := range qualified.FindAllString(text, -1) {
		ours := strings.Replace(name, "amotel.", "otel.", 1)
		if !known[ours] && name != "middleware.Retry" && !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// api lists the exported names of the public packages, a line each, with the members of types below them.
func api(t *tree) string {
	lines := make(map[string][]string) // by package
	for _, s := range t.shipped() {
		if strings.Contains(s.dir+"/", "internal/") || strings.HasPrefix(s.dir, "examples") || s.file.Name.Name == "main" {
			continue
		}
		for _, decl := range s.file.Decls {
			lines[s.dir] = append(lines[s.dir], exported(decl)...)
		}
	}
	var text strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		slices.Sort(lines[dir])
		top := 0
		for _, line := range lines[dir] {
			name, _, _ := strings.Cut(strings.Fields(line)[1], "(")
			if !strings.Contains(name, ".") {
				top++
			}
		}
		fmt.Fprintf(&text, "%s: %d names\n", dir, top)
		for _, line := range lines[dir] {
			fmt.Fprintf(&text, "  %s\n", line)
		}
	}
	return text.String()
}

// exported renders what a declaration exports: its kind, its name, and what has to stay for its users.
func exported(decl ast.Decl) (lines []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if !d.Name.IsExported() {
			return nil
		}
		if d.Recv != nil {
			receiver := strings.TrimLeft(rendered(d.Recv.List[0].Type), "*")
			receiver, _, _ = strings.Cut(receiver, "[")
			if !ast.IsExported(receiver) {
				return nil
			}
			name = receiver + "." + name
		}
		return []string{"func " + name + strings.TrimPrefix(rendered(d.Type), "func")}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					lines = append(lines, typeLines(s)...)
				}
			case *ast.ValueSpec:
				for _, name := range s.Names {
					if name.IsExported() {
						lines = append(lines, d.Tok.String()+" "+name.Name)
					}
				}
			}
		}
	}
	return lines
}

func typeLines(s *ast.TypeSpec) (lines []string) {
	name := s.Name.Name
	members := func(kind string, fields *ast.FieldList) {
		for _, field := range fields.List {
			for _, id := range field.Names {
				if id.IsExported() {
					lines = append(lines, kind+" "+name+"."+id.Name+" "+rendered(field.Type))
				}
			}
			if len(field.Names) == 0 {
				lines = append(lines, kind+" "+name+".embedded "+rendered(field.Type))
			}
		}
	}
	switch x := s.Type.(type) {
	case *ast.StructType:
		lines = append(lines, "type "+name+" struct")
		members("field", x.Fields)
	case *ast.InterfaceType:
		lines = append(lines, "type "+name+" interface")
		members("method", x.Methods)
	default:
		lines = append(lines, "type "+name+" "+rendered(s.Type))
	}
	return lines
}

func rendered(node ast.Node) string {
	var text bytes.Buffer
	if err := printer.Fprint(&text, token.NewFileSet(), node); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(text.String()), " ")
}
