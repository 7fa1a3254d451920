package decider

import (
	"math/big"
	"testing"
	"time"
)

type (
	count    int
	Base     struct{ X int }
	base     struct{ X int }
	embedded struct {
		time.Time
		Balance int
	}
	secret struct{ k string }
)

// checked returns what is wrong with a state.
func checked[S any](state S) error {
	_, err := Decider[S, int, noEvent]{}.encoded(state)
	return err
}

type noEvent struct{}

func (noEvent) PayloadType() string { return "none" }

// TestASnapshotIsTheStateOrIsNotMade: what JSON loses of a state is noticed when it is stored. It is inside, since from
// outside a snapshot that was not made looks like one that was.
func TestASnapshotIsTheStateOrIsNotMade(t *testing.T) {
	for name, err := range map[string]error{
		"promoted methods":      checked(embedded{time.Unix(5, 0), 500}),
		"an unexported type":    checked(struct{ count }{7}),
		"a hidden pointer":      checked(struct{ *base }{&base{3}}),
		"any with an integer":   checked(struct{ V any }{int64(1<<53 + 1)}),
		"keys that are structs": checked(map[secret]int{{"a"}: 1}),
		"a shadowed field": checked(struct {
			Base
			X int
		}{Base{1}, 2}),
		"text that is not UTF-8": checked("\xff"),
	} {
		if err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
	for name, err := range map[string]error{
		"times, numbers and nothing": checked(struct {
			At    time.Time
			Sum   *big.Int
			Open  map[string][]int
			Empty map[string]int `json:",omitempty"`
			None  []int          `json:",omitempty"`
			Cache func()         `json:"-"`
		}{time.Now(), big.NewInt(1 << 40), map[string][]int{"a": {1}, "b": nil}, map[string]int{}, []int{}, nil}),
		"a pointer": checked(&Base{3}),
		"a number":  checked(7),
	} {
		if err != nil {
			t.Errorf("%s: got %v, want no error", name, err)
		}
	}
}
