//go:build unix

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// source is the code that mistakes are put into: the Go files without tests, and
// the files beside them that may be embedded.
type source struct {
	root     string
	decls    map[string][]*scope // by bare name
	embedded map[string][]string // paths by base name
}

// scope is one declaration: a function, a method, a type, a constant or a variable.
type scope struct {
	file            *goFile
	pkg, recv, name string
	node            ast.Node
}

type goFile struct {
	path   string // from the root
	tokens *token.File
	syntax *ast.File
	text   string
	code   string // text with blanks in place of comments
}

// skipped are directories without code of the library.
var skipped = []string{"integration", "examples", "tools", "testdata", "storetest", "brokertest"} // immutable

// readSource parses everything below root, and of that only dirs if there are any.
func readSource(root string, dirs ...string) (*source, error) {
	s := &source{root: root, decls: make(map[string][]*scope), embedded: make(map[string][]string)}
	if len(dirs) == 0 {
		dirs = []string{"."}
	}
	for _, dir := range dirs {
		top := filepath.Join(root, dir)
		err := filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case path == top:
				return nil
			case e.IsDir() && (strings.HasPrefix(e.Name(), ".") || slices.Contains(skipped, e.Name())):
				return filepath.SkipDir
			case e.IsDir() || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			return s.add(path)
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *source) add(path string) error {
	from, err := filepath.Rel(s.root, path)
	if err != nil {
		return err
	}
	if filepath.Ext(path) != ".go" {
		s.embedded[filepath.Base(path)] = append(s.embedded[filepath.Base(path)], from)
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	f, err := parse(from, string(text))
	if err != nil {
		return err
	}
	for _, d := range f.scopes() {
		s.decls[d.name] = append(s.decls[d.name], d)
	}
	return nil
}

func parse(path, text string) (*goFile, error) {
	files := token.NewFileSet()
	syntax, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := &goFile{path: path, tokens: files.File(syntax.FileStart), syntax: syntax, text: text}
	code := []byte(text)
	for _, group := range syntax.Comments {
		from, to := f.span(group)
		for i := from; i < to; i++ {
			code[i] = ' '
		}
	}
	f.code = string(code)
	return f, nil
}

// span is where a node begins and ends in the text.
func (f *goFile) span(n ast.Node) (from, to int) {
	return f.tokens.Offset(n.Pos()), f.tokens.Offset(n.End())
}

func (f *goFile) scopes() (all []*scope) {
	add := func(name, recv string, node ast.Node) {
		all = append(all, &scope{file: f, pkg: f.syntax.Name.Name, recv: recv, name: name, node: node})
	}
	for _, d := range f.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(d.Name.Name, receiver(d), d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(spec.Name.Name, "", spec)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						add(name.Name, "", spec)
					}
				}
			}
		}
	}
	return all
}

// receiver is the name of a method's type.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	for t := d.Recv.List[0].Type; ; {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr:
			t = of.X
		case *ast.IndexListExpr:
			t = of.X
		case *ast.Ident:
			return of.Name
		default:
			return ""
		}
	}
}

// lookup finds the declaration of that name: settle, ledger.live, postgres.recordSQL
// or postgres.database.Settle. What stands in front is a type, a package or both.
func (s *source) lookup(name string) (*scope, error) {
	parts := strings.Split(name, ".")
	last := len(parts) - 1
	found := slices.DeleteFunc(slices.Clone(s.decls[parts[last]]), func(d *scope) bool {
		switch last {
		case 0:
			return false
		case 1:
			return parts[0] != d.pkg && parts[0] != d.recv
		}
		return parts[0] != d.pkg || parts[1] != d.recv
	})
	if plain := slices.DeleteFunc(slices.Clone(found), func(d *scope) bool { return d.recv != "" }); last == 1 && len(plain) == 1 {
		found = plain // in Go, pkg.name is no method
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("%s: no declaration has this name", name)
	case 1:
		return found[0], nil
	}
	return nil, fmt.Errorf("%s: the name is ambiguous: %s", name, places(found))
}

// places says where declarations are.
func places(found []*scope) string {
	var all []string
	for _, d := range found {
		of := d.pkg
		if d.recv != "" {
			of += "." + d.recv
		}
		all = append(all, fmt.Sprintf("%s.%s (%s:%d)", of, d.name, d.file.path, d.file.tokens.Line(d.node.Pos())))
	}
	return strings.Join(all, ", ")
}
