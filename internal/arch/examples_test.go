package arch_test

import (
	"go/ast"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestPublicPackagesHaveAnExample: the page of each public package has an example whose output is checked.
func TestPublicPackagesHaveAnExample(t *testing.T) {
	t.Parallel()
	repo, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	without := []string{"broker/brokertest"} // its calls need a *testing.T
	if got := withoutExample(repo); !slices.Equal(got, without) {
		t.Errorf("packages without an example that has an output: got %q, want %q alone", got, without)
	}
}

func TestMissingExamplesAreFound(t *testing.T) {
	t.Parallel()
	const prints, compiles = "package p\nfunc Example() {\n\t// Output: 1\n}\n", "package p\nfunc ExampleF() {\n\tF()\n}\n// Output: 1\n"
	repo := repository(t, map[string]string{
		"a/a.go": "package a\n", "a/a_test.go": prints, "b/b.go": "package b\n", "b/b_test.go": compiles, "c/c.go": "package c\n",
		"c/internal/d/d.go": "package d\n", "tools/e.go": "package tools\n", "f/main.go": "package main\n",
		"g/go.mod": "module g\n", "g/g.go": "package g\n",
	})
	if got, want := withoutExample(repo), []string{"b", "c", "g"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// withoutExample returns the directories of the public packages of all modules without an example that has an output.
func withoutExample(t *tree) []string {
	missing := make(map[string]bool)
	for _, s := range t.sources {
		if !s.test && s.file.Name.Name != "main" && !strings.Contains("/"+s.dir+"/", "/internal/") &&
			!matches(s.dir, []string{"cmd/...", "examples/...", "integration/...", "tools/..."}) {
			missing[s.dir] = true
		}
	}
	for _, s := range t.sources {
		if s.test && slices.ContainsFunc(s.file.Decls, func(d ast.Decl) bool { return isExample(s.file, d) }) {
			delete(missing, s.dir)
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// isExample reports whether a declaration is an example with an output.
func isExample(file *ast.File, decl ast.Decl) bool {
	fn, ok := decl.(*ast.FuncDecl)
	return ok && strings.HasPrefix(fn.Name.Name, "Example") && slices.ContainsFunc(file.Comments, func(c *ast.CommentGroup) bool {
		inside := c.Pos() > fn.Body.Pos() && c.End() < fn.Body.End()
		return inside && strings.HasPrefix(strings.ToLower(c.Text()), "output:")
	})
}
