package arch_test

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"testing"
)

// mention matches a name of ARCHITECTURE.md: that of a type's method or field, or of something in a package.
var mention = regexp.MustCompile("`\\*?([A-Za-z]\\w*)\\.([A-Za-z]\\w*)") // immutable

// TestArchitectureNamesWhatThereIs: each function, type and field that the page names is in the code.
func TestArchitectureNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	repo, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[[2]string]bool)
	for _, s := range repo.sources {
		if !s.test {
			names(s, known)
		}
	}
	page, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := mention.FindAllStringSubmatch(string(page), -1)
	if len(found) < 50 {
		t.Errorf("got %d names, want at least 50: is the page written otherwise?", len(found))
	}
	for _, m := range found {
		of := [2]string{m[1], m[2]}
		if !known[of] && m[2] != "go" && m[2] != "md" && m[2] != "js" && m[2] != "sql" {
			t.Errorf("ARCHITECTURE.md names `%s.%s`, which is not in the code", m[1], m[2])
		}
	}
}

// names adds what a file declares: methods and fields by their type, the rest by its package.
func names(s source, known map[[2]string]bool) {
	pkg := path.Base(s.dir)
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			of := pkg
			if d.Recv != nil {
				of = receiver(d.Recv.List[0].Type)
			}
			known[[2]string{of, d.Name.Name}] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					known[[2]string{pkg, spec.Name.Name}] = true
					members(spec, known)
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						known[[2]string{pkg, name.Name}] = true
					}
				}
			}
		}
	}
}

// members adds the fields of a struct and the methods of an interface.
func members(spec *ast.TypeSpec, known map[[2]string]bool) {
	var list *ast.FieldList
	switch of := spec.Type.(type) {
	case *ast.StructType:
		list = of.Fields
	case *ast.InterfaceType:
		list = of.Methods
	default:
		return
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			known[[2]string{spec.Name.Name, name.Name}] = true
		}
	}
}
