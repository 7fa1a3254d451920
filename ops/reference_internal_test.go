package ops

// The names of the checks are not exported.

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestReferenceHasAllChecks compares docs/reference/doctor.md with the checks, in their order.
func TestReferenceHasAllChecks(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/doctor.md")
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		got = append(got, row[1])
	}
	for _, c := range (&doctor{}).checks() {
		want = append(want, c.name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("docs/reference/doctor.md lists %q, want %q", got, want)
	}
}
