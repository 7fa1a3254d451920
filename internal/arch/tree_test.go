package arch_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"
)

// A tree is the parsed source of the repository, or of a small made-up one.
type tree struct {
	fset    *token.FileSet
	sources []source
	goMods  map[string]string // content of each go.mod by the directory of its module
	large   []string          // files with more than maxBytes
}

// A source is one .go file. Paths are relative to the root of the repository.
type source struct {
	path   string
	dir    string
	module string // directory of its module: "." for the root module
	test   bool   // a _test.go file
	lines  int
	long   []int // lines with more than maxColumns columns
	file   *ast.File
}

// load parses every .go file below the root, whatever its build constraints, except those in
// directories that the go command ignores too.
func load(fsys fs.FS) (*tree, error) {
	t := &tree{fset: token.NewFileSet(), goMods: map[string]string{}}
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && ignored(name):
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Size() > maxBytes {
			t.large = append(t.large, name)
		}
		switch {
		case path.Base(name) == "go.mod":
			content, err := fs.ReadFile(fsys, name)
			t.goMods[path.Dir(name)] = string(content)
			return err
		case path.Ext(name) == ".go":
			return t.parse(fsys, name)
		}
		return nil
	})
	for i := range t.sources {
		t.sources[i].module = t.moduleOf(t.sources[i].dir)
	}
	return t, err
}

func ignored(dir string) bool {
	base := path.Base(dir)
	return dir != "." && (base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_"))
}

func (t *tree) parse(fsys fs.FS, name string) error {
	content, err := fs.ReadFile(fsys, name)
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(t.fset, name, content, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	var long []int
	for i, line := range bytes.Split(content, []byte("\n")) {
		if utf8.RuneCount(line) > maxColumns {
			long = append(long, i+1)
		}
	}
	t.sources = append(t.sources, source{
		path:  name,
		dir:   path.Dir(name),
		test:  strings.HasSuffix(name, "_test.go"),
		lines: bytes.Count(content, []byte("\n")),
		long:  long,
		file:  file,
	})
	return nil
}

// moduleOf returns the nearest directory at or above dir that has a go.mod, or "." when none has.
func (t *tree) moduleOf(dir string) string {
	for dir != "." {
		if _, ok := t.goMods[dir]; ok {
			return dir
		}
		dir = path.Dir(dir)
	}
	return "."
}

// shipped returns the non-test files of the root module: what users of the library compile.
func (t *tree) shipped() []source {
	var files []source
	for _, s := range t.sources {
		if s.module == "." && !s.test {
			files = append(files, s)
		}
	}
	return files
}

// at formats a violation at a node as "path:line: text".
func (t *tree) at(node ast.Node, format string, args ...any) string {
	pos := t.fset.Position(node.Pos())
	return fmt.Sprintf("%s:%d: %s", pos.Filename, pos.Line, fmt.Sprintf(format, args...))
}

// matches reports whether a slash-separated path matches one of the patterns: "a/b" is that path alone,
// "a/..." that path and everything below, "..." everything.
func matches(name string, patterns []string) bool {
	for _, pattern := range patterns {
		base, below := strings.CutSuffix(pattern, "...")
		base = strings.TrimSuffix(base, "/")
		if name == base || below && (base == "" || strings.HasPrefix(name, base+"/")) {
			return true
		}
	}
	return false
}
