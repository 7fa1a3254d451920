package arch_test

import (
	"os"
	"slices"
	"testing"
)

// rules are all the rules there are. A rule returns one line for each violation.
func rules() []rule {
	return []rule{
		{"imports follow the law", importLaw},
		{"the root module requires no database driver", noDrivers},
		{"a dependency has one version", oneVersion},
		{"the root module is for every platform", portable},
		{"every package has a doc.go", docFiles},
		{"files and functions are short", sizes},
		{"lines are short", columns},
		{"no file is large", noLargeFiles},
		{"SQL stands only in internal/store", sqlInStore},
		{"transactions of the library's own begin in internal/txn", ownTransactions},
		{"what the application wrote runs in internal/isolate", goroutines},
		{"names of databases stand only in their packages", databaseNames},
		{"a package is named after its directory", packageNames},
		{"texts name programs, not persons", words},
		{"types have few methods in few files", methods},
		{"nothing sleeps", noSleep},
		{"no init functions and no mutable package state", noState},
	}
}

type rule struct {
	name  string
	check func(*tree) []string
}

// Promise: stalled-client
func TestRepository(t *testing.T) {
	t.Parallel()
	repo, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	self := func(s source) bool { return s.path == "internal/arch/arch_test.go" && s.module == "." }
	if !slices.ContainsFunc(repo.sources, self) {
		t.Fatal("this file is not among the files read: the tests look at the wrong directory")
	}
	for _, r := range rules() {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, violation := range r.check(repo) {
				t.Error(violation)
			}
		})
	}
}
