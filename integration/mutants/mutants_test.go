//go:build unix

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func readAll(t *testing.T) *source {
	t.Helper()
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	code, err := readSource(root)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// Whether tests catch a mutant takes minutes to find out: see make mutants. That each
// still has its place in the library, compiles, and names tests that exist, shows at once.
func TestMutantsApply(t *testing.T) {
	code := readAll(t)
	seen := make(map[string]bool)
	for _, m := range mutants() {
		if seen[m.name] || m.pkg == "" || m.tests == "" || m.says == "" {
			t.Errorf("%s: got no name of its own, no tests or nothing that they print", m.name)
		}
		seen[m.name] = true
		for _, name := range regexp.MustCompile(`\b(Test|Fuzz)\w+`).FindAllString(m.tests, -1) {
			if !strings.Contains(testsOf(t, filepath.Join(code.root, m.pkg)), "\nfunc "+name+"(") {
				t.Errorf("%s: %s has no test %s", m.name, m.pkg, name)
			}
		}
		_ = m.expected() // compiles
		if _, err := m.mistake.apply(code); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	t.Logf("%d mutants", len(seen))
}

// testsOf returns the text of the tests of a package.
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

func TestASeedRepeatsItsSample(t *testing.T) {
	var names [2][]string
	for i := range names {
		for _, m := range sampled(mutants(), 5, 7) {
			names[i] = append(names[i], m.name)
		}
	}
	if len(names[0]) != 5 || !slices.Equal(names[0], names[1]) {
		t.Errorf("got %q and %q, want the same 5", names[0], names[1])
	}
}
