//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
)

const sum = "integration/mutants/testdata/sum"

func TestRunnerReportsMutantsThatAreNotCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles tests")
	}
	root, err := findRoot()
	if err != nil {
		t.Fatal(err)
	}
	code, err := readSource(root, sum)
	if err != nil {
		t.Fatal(err)
	}
	add := tests(sum, "TestAdd")
	for what, test := range map[string]struct {
		mutant mutant
		want   string
	}{
		"caught":            {mutant{"", in("Add", replace("a + b", "a - b")), add, `got -1, want 5`}, "caught: sum_test.go:11: Add(2, 3)"},
		"survives":          {mutant{"", in("Double", replace("a + a", "a")), add, `got`}, "survived ./" + sum + " ^TestAdd$"},
		"does not compile":  {mutant{"", in("Add", replace("a + b", "true")), add, `got`}, "does not compile: exit status 1"},
		"fails differently": {mutant{"", in("Add", never("a == 0"), replace("a + b", "0")), add, `got -1`}, "failed without printing"},
		"fails anyway":      {mutant{"", in("Add", always("a == 0")), tests(sum, "TestFails"), `got 3`}, "nothing can be said of mutants"},
		"says so anyway":    {mutant{"", in("Add", always("a == 0")), add, `PASS: TestAdd`}, "without a mutant the tests print"},
		"has no tests":      {mutant{"", in("Add", always("a == 0")), tests(sum, "TestNone"), `got`}, "there are no such tests"},
	} {
		t.Run(what, func(t *testing.T) {
			r, err := newRunner(code, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer r.close()
			var out strings.Builder
			r.out = &out
			err = r.run(t.Context(), []mutant{test.mutant}, true)
			got := fmt.Sprint(out.String(), err)
			if (err == nil) != (what == "caught") || !strings.Contains(got, test.want) {
				t.Errorf("run: got %s, want %q", got, test.want)
			}
		})
	}
}
