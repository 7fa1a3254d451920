//go:build unix

package main

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// typeChecker checks packages with a mistake in them, against what the go command
// has compiled of the others.
type typeChecker struct {
	root     string
	files    *token.FileSet
	packages map[string]listed // by directory
	parsed   map[string]*ast.File
	imports  types.Importer
}

func newTypeChecker(t *testing.T, code *source, dirs []string) *typeChecker {
	t.Helper()
	c := &typeChecker{root: code.root, files: token.NewFileSet(), packages: make(map[string]listed), parsed: make(map[string]*ast.File)}
	all, err := list(t.Context(), code.root, dirs...)
	if err != nil {
		t.Fatal(err)
	}
	exports := make(map[string]string)
	for _, l := range all {
		c.packages[l.Dir], exports[l.ImportPath] = l, l.Export
	}
	c.imports = importer.ForCompiler(c.files, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("%s: not compiled", path)
		}
		return os.Open(exports[path])
	})
	return c
}

// check type-checks the files that are changed. Of others in their packages the bodies of
// functions are left out, which would take most of the time.
func (c *typeChecker) check(texts map[string]string) error {
	dirs := make(map[string]bool)
	for path := range texts {
		if strings.HasSuffix(path, ".go") {
			dirs[filepath.Join(c.root, filepath.Dir(path))] = true
		}
	}
	var wrong error
	config := types.Config{Importer: c.imports, Error: func(err error) {
		from, _ := filepath.Rel(c.root, c.files.Position(err.(types.Error).Pos).Filename)
		_, changed := texts[from]
		if changed && wrong == nil {
			wrong = err
		}
	}}
	for dir := range dirs {
		p := c.packages[dir]
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := c.parse(filepath.Join(dir, name), texts)
			if err != nil {
				return err
			}
			files = append(files, f)
		}
		_, _ = config.Check(p.ImportPath, c.files, files, nil) // see Error
	}
	return wrong
}

func (c *typeChecker) parse(path string, texts map[string]string) (*ast.File, error) {
	from, err := filepath.Rel(c.root, path)
	if err != nil {
		return nil, err
	}
	text, changed := texts[from]
	if changed {
		return parser.ParseFile(c.files, path, text, parser.SkipObjectResolution)
	}
	if c.parsed[path] == nil {
		c.parsed[path], err = parser.ParseFile(c.files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range c.parsed[path].Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok {
				f.Body = nil
			}
		}
	}
	return c.parsed[path], nil
}

func TestMutantsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the library")
	}
	code := readAll(t)
	all := make(map[string]map[string]string)
	dirs := make(map[string]bool)
	for _, m := range mutants() {
		texts, err := m.mistake.apply(code)
		if err != nil {
			continue // see TestMutantsApply
		}
		all[m.name] = texts
		for path := range texts {
			if strings.HasSuffix(path, ".go") {
				dirs["./"+filepath.Dir(path)] = true
			}
		}
	}
	c := newTypeChecker(t, code, slices.Sorted(maps.Keys(dirs)))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := c.check(all[name]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
