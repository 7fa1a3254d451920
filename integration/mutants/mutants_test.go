//go:build unix

package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Whether the tests notice is for `make mutants`, which takes minutes. That every
// mutant still has a place in the library, and tests, shows at once.
func TestMutantsApply(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, m := range mutants() {
		if seen[m.name] || m.pkg == "" || m.tests == "" || m.says == "" {
			t.Errorf("%s: got no name of its own, no tests or nothing that they say", m.name)
		}
		seen[m.name] = true
		for _, name := range regexp.MustCompile(`\bTest\w+`).FindAllString(m.tests, -1) {
			if !strings.Contains(testsOf(t, filepath.Join(root, m.pkg)), "\nfunc "+name+"(") {
				t.Errorf("%s: %s has no test %s", m.name, m.pkg, name)
			}
		}
		_ = m.expected() // compiles
		texts, err := m.apply(root)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		for file, text := range texts {
			if !strings.HasSuffix(file, ".go") {
				continue // SQL, a template or a script
			}
			if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("mutants: got %d, want at least 10", len(seen))
	}
}

// testsOf is the text of the tests of a package.
func testsOf(t *testing.T, dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

func TestMutantWithoutAPlaceIsAnError(t *testing.T) {
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	for what, old := range map[string]string{"nowhere": "no such text", "in many places": "func "} {
		m := mutant{file: postgres, changes: []change{{old, "x"}}}
		if _, err := m.apply(root); err == nil {
			t.Errorf("a text that is %s: got no error, want one", what)
		}
	}
}
