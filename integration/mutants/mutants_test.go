//go:build unix

package main

import (
	"go/parser"
	"go/token"
	"testing"
)

// Whether the tests notice is for `make mutants`, which takes minutes. That every
// mutant still has a place in the library shows at once.
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
		_ = m.expected() // compiles
		text, err := m.apply(root)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.file, text, 0); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if len(seen) < 10 {
		t.Errorf("mutants: got %d, want at least 10", len(seen))
	}
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
