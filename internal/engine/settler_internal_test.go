package engine

// An internal test: how much goes into one statement only a slow database would show.

import (
	"slices"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func TestResultsAreSettledInParts(t *testing.T) {
	t.Parallel()
	long := store.Result{Errors: strings.Repeat("e", maxSettleTexts/4), Reason: "r"}
	for name, test := range map[string]struct {
		results []store.Result
		want    []int
	}{
		"none":                {nil, nil},
		"as many as may":      {make([]store.Result, maxSettle), []int{maxSettle}},
		"more":                {make([]store.Result, 2*maxSettle+1), []int{maxSettle, maxSettle, 1}},
		"long texts":          {slices.Repeat([]store.Result{long}, 7), []int{3, 3, 1}},
		"texts too long by 1": {[]store.Result{{Errors: strings.Repeat("e", maxSettleTexts+1)}, {}}, []int{1, 1}},
	} {
		var got []int
		for rest := test.results; len(rest) > 0; {
			n := settleable(rest)
			got, rest = append(got, n), rest[n:]
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got parts of %v, want %v", name, got, test.want)
		}
	}
}
