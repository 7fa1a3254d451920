package decider

// An internal test: which types of states survive JSON is a matter of one function.

import (
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestStatesThatSnapshotsWouldLoseAreRefused(t *testing.T) {
	t.Parallel()
	type node struct {
		Next *node
		At   time.Time
		Sum  big.Int
	}
	for name, test := range map[string]struct {
		of   reflect.Type
		says string
	}{
		"exported":            {reflect.TypeFor[struct{ A int }](), ""},
		"itself, and its own": {reflect.TypeFor[node](), ""},
		"left out on purpose": {reflect.TypeFor[struct {
			cache int `json:"-"`
		}](), ""},
		"a field": {reflect.TypeFor[struct {
			Balance int
			limit   int
		}](), "state.limit is not exported"},
		"deep":                   {reflect.TypeFor[map[string][]*struct{ Inner struct{ amount int } }](), "state.Inner.amount is not exported"},
		"a function":             {reflect.TypeFor[struct{ F func() }](), "state.F is a func()"},
		"a channel in a pointer": {reflect.TypeFor[*chan int](), "state is a chan int"},
	} {
		err := survives(test.of, "state", nil)
		if test.says == "" && err != nil || test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
	}
}
