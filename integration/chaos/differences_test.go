package chaos_test

import (
	"reflect"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// TestCompare: each way in which a log can arrive otherwise than it left is told.
func TestCompare(t *testing.T) {
	t.Parallel()
	a1, b1, a2, a3 := chaos.Entry{Stream: "a", Job: 1}, chaos.Entry{Stream: "b", Job: 2}, chaos.Entry{Stream: "a",
		Job: 3}, chaos.Entry{Stream: "a", Job: 4}
	log := []chaos.Entry{a1, b1, a2, a3}
	for name, test := range map[string]struct {
		passed []chaos.Entry
		want   chaos.Differences
	}{
		"as it was":               {[]chaos.Entry{a1, b1, a2, a3}, chaos.Differences{}},
		"streams at another pace": {[]chaos.Entry{b1, a1, a2, a3}, chaos.Differences{}},
		"lost":                    {[]chaos.Entry{a1, b1, a3}, chaos.Differences{Lost: []chaos.Entry{a2}}},
		"twice":                   {[]chaos.Entry{a1, b1, a2, a1, a3}, chaos.Differences{Twice: []chaos.Entry{a1}}},
		"inverted":                {[]chaos.Entry{a1, b1, a3, a2}, chaos.Differences{Inverted: []chaos.Entry{a2}}},
		"unknown": {[]chaos.Entry{a1, {Stream: "a", Job: 9}, b1, a2, a3},
			chaos.Differences{Unknown: []chaos.Entry{{Stream: "a", Job: 9}}}},
		"in another stream": {[]chaos.Entry{a1, {Stream: "a", Job: 2}, a2, a3},
			chaos.Differences{Unknown: []chaos.Entry{{Stream: "a", Job: 2}}, Lost: []chaos.Entry{b1}}},
	} {
		got := chaos.Compare(log, test.passed)
		if !reflect.DeepEqual(got, test.want) || got.Kept() != reflect.DeepEqual(got, chaos.Differences{}) {
			t.Errorf("%s: got %#v, want %#v", name, got, test.want)
		}
	}
}
