package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
)

// person matches words for people. A program, a process or a caller is called what it is.
var person = regexp.MustCompile(`(?i)\b(nobody|somebody|whoever|anybody)\b`) // immutable

// words wants comments and texts of what users see to say which program, process or caller does something. Of the
// packages below internal it looks at texts alone.
func words(t *tree) []string {
	var violations []string
	for _, s := range t.sources {
		if s.test || matches(s.dir, []string{"internal/store/storetest", "internal/arch", "integration/...", "examples/..."}) ||
			matches(s.module, []string{"integration/...", "tools", "examples/..."}) {
			continue
		}
		if !matches(s.dir, []string{"internal/..."}) {
			for _, group := range s.file.Comments {
				if word := person.FindString(group.Text()); word != "" {
					violations = append(violations, t.at(group, "%q: say which program, process or caller", word))
				}
			}
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if word := person.FindString(literal.Value); word != "" {
					violations = append(violations, t.at(literal, "%q: say which program, process or caller", word))
				}
			}
			return true
		})
	}
	return violations
}

const (
	maxMethods = 40
	maxFiles   = 4
)

// methods wants a type to have at most 40 methods, in at most 4 files.
func methods(t *tree) []string {
	counts, files := make(map[string]int), make(map[string]map[string]bool)
	for _, s := range t.sources {
		if s.test || s.module != "." && s.module != "cmd/asyncmonolith" ||
			matches(s.dir, []string{"internal/store/storetest", "internal/store/postgres", "internal/store/sqlite", "internal/store/mariadb"}) {
			continue // what implements the dialect has its methods
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			name := s.dir + "." + receiver(f.Recv.List[0].Type)
			if counts[name]++; files[name] == nil {
				files[name] = make(map[string]bool)
			}
			files[name][s.path] = true
		}
	}
	var violations []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		n, in := counts[name], len(files[name])
		if n > maxMethods || in > maxFiles {
			violations = append(violations, fmt.Sprintf("%s has %d methods in %d files, at most %d in %d are allowed", name, n, in,
				maxMethods, maxFiles))
		}
	}
	return violations
}

// receiver is the name of the type that a method belongs to.
func receiver(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
