//go:build unix

package main

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// mistake is what is wrong in a mutant: mostly one edit, and more where one guard
// stands behind another.
type mistake []edit

// edit changes a declaration, or a file that is embedded.
type edit struct {
	decl  string // as lookup takes it
	file  string // the base name of an embedded file
	steps []step
}

// step is one change. It has to find exactly one place.
type step struct {
	call string // as it stands in the table, for errors
	find func(*scope) []splice
}

// splice is a text in place of what is between two offsets.
type splice struct {
	from, to int
	text     string
}

// in changes the declaration of that name.
func in(decl string, steps ...step) mistake { return mistake{{decl: decl, steps: steps}} }

// file replaces a text in the embedded file of that name, with as many of its folders as tell it from others.
func file(base, old, text string) mistake {
	return mistake{{file: base, steps: []step{{call: fmt.Sprintf("file(%q)", old), find: func(s *scope) []splice {
		return literally(s.file.text, 0, old, text)
	}}}}}
}

// both makes one mistake of several.
func both(all ...mistake) mistake { return slices.Concat(all...) }

// apply returns the files with the mistake in them, by their paths from the root.
func (m mistake) apply(s *source) (map[string]string, error) {
	files := make(map[string]*goFile)
	splices := make(map[string][]splice)
	for _, e := range m {
		d, err := s.scopeOf(e)
		if err != nil {
			return nil, err
		}
		files[d.file.path] = d.file
		for _, st := range e.steps {
			found, err := st.places(d)
			if err != nil {
				return nil, fmt.Errorf("%s in %s%s: %w", st.call, e.decl, e.file, err)
			}
			splices[d.file.path] = append(splices[d.file.path], found...)
		}
	}
	texts := make(map[string]string, len(files))
	for name, f := range files {
		text, err := spliced(f.text, splices[name])
		if err == nil && f.syntax != nil {
			text, err = withoutUnused(f, text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		texts[name] = text
	}
	return texts, nil
}

func (s *source) scopeOf(e edit) (*scope, error) {
	if e.file == "" {
		return s.lookup(e.decl)
	}
	isOther := func(p string) bool { return !strings.HasSuffix("/"+p, "/"+e.file) }
	paths := slices.DeleteFunc(slices.Clone(s.embedded[path.Base(e.file)]), isOther)
	if len(paths) != 1 {
		return nil, fmt.Errorf("%s: %d files have this name, want one: %s", e.file, len(paths), strings.Join(paths, ", "))
	}
	text, err := os.ReadFile(filepath.Join(s.root, paths[0]))
	return &scope{file: &goFile{path: paths[0], text: string(text)}}, err
}

func (st step) places(d *scope) ([]splice, error) {
	found := st.find(d)
	if len(found) == 1 {
		return found, nil
	}
	var lines []string
	for _, f := range found {
		lines = append(lines, fmt.Sprintf("%s:%d", d.file.path, 1+strings.Count(d.file.text[:f.from], "\n")))
	}
	return nil, fmt.Errorf("%d places, want one: %s", len(found), strings.Join(lines, ", "))
}

// spliced is the text with all splices, which must not overlap. Lines keep their numbers: see program.
func spliced(text string, all []splice) (string, error) {
	slices.SortStableFunc(all, func(a, b splice) int { return b.from - a.from })
	end := len(text)
	for _, s := range all {
		if s.to > end {
			return "", fmt.Errorf("two steps change the same place: %.40q", text[s.from:s.to])
		}
		text, end = text[:s.from]+s.lines(text)+text[s.to:], s.from
	}
	return text, nil
}

// lines is what stands in the place of the splice, with as many lines as that had.
func (s splice) lines(text string) string {
	missing := strings.Count(text[s.from:s.to], "\n") - strings.Count(s.text, "\n")
	if missing <= 0 {
		return s.text
	}
	blank := strings.Repeat("\n", missing)
	if strings.HasSuffix(text[:s.from], "return ") { // which a line break would end
		return "(" + blank + s.text + ")"
	}
	return blank + s.text
}

// withoutUnused keeps imports that the mistake has left without a use from being
// what the compiler complains of.
func withoutUnused(f *goFile, text string) (string, error) {
	mutated, err := parse(f.path, text)
	if err != nil {
		return "", fmt.Errorf("the mutant does not parse: %w", err)
	}
	gone := qualifiers(f.syntax)
	maps.DeleteFunc(gone, func(name string, _ bool) bool { return qualifiers(mutated.syntax)[name] })
	var blanks []splice
	for _, spec := range mutated.syntax.Imports {
		from, _ := mutated.span(spec.Path)
		base := strings.Trim(spec.Path.Value, `"`)
		base = base[strings.LastIndex(base, "/")+1:]
		if spec.Name == nil && gone[base] {
			blanks = append(blanks, splice{from, from, "_ "})
		}
	}
	return spliced(text, blanks)
}

// qualifiers are the names that stand in front of a dot.
func qualifiers(f *ast.File) map[string]bool {
	all := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := s.X.(*ast.Ident)
		if ok {
			all[x.Name] = true
		}
		return true
	})
	return all
}
