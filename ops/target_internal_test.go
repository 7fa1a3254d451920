package ops

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestNoConditionIsLeftOut: a condition of a filter that was forgotten would have an operation change more than was asked for.
// That is inside, since each condition takes messages of its own.
func TestNoConditionIsLeftOut(t *testing.T) {
	t.Parallel()
	for field := range reflect.TypeFor[admin.Filter]().NumField() {
		var f admin.Filter
		name := reflect.TypeFor[admin.Filter]().Field(field).Name
		switch value := reflect.ValueOf(&f).Elem().Field(field); value.Kind() {
		case reflect.String:
			value.SetString("ready")
		case reflect.Bool:
			value.SetBool(true)
		case reflect.Int64:
			value.SetInt(1)
		case reflect.Array:
			value.Index(0).SetUint(1)
		default:
			t.Fatalf("%s: a %s is new", name, value.Kind())
		}
		if pendingRows(f) == (store.PendingFilter{}) {
			t.Errorf("%s is left out", name)
		}
	}
}

// TestPins are written as differences, and read again.
func TestPins(t *testing.T) {
	t.Parallel()
	written, err := asJSON(pinnedTarget{Target{Pending: &admin.Filter{Consumer: "c"}}, pins{7, 8, 1000, 1_000_001}})
	if want := `{"pending":{"consumer":"c"},"pinned":[7,1,992,999001]}`; err != nil || string(written) != want {
		t.Errorf("got %s, want %s", written, want)
	}
	read, err := targetOf(store.Operation{Target: written})
	if err != nil || !slices.Equal(read.Pinned, pins{7, 8, 1000, 1_000_001}) || read.Pending.Consumer != "c" {
		t.Errorf("got %+v, error %v", read, err)
	}
	var shown Target // as listings and older versions have it
	if err := json.Unmarshal(written, &shown); err != nil || shown.Pending.Consumer != "c" {
		t.Errorf("got %+v, error %v", shown, err)
	}
	for _, test := range []struct {
		after int64
		next  []int64
		more  bool
	}{{0, []int64{7, 8}, true}, {7, []int64{8, 1000}, true}, {500, []int64{1000, 1_000_001}, false}, {1_000_001, nil,
		false}, {2_000_000, nil, false}} {
		if next, more := read.Pinned.behind(test.after, 2); !slices.Equal(next, test.next) || more != test.more {
			t.Errorf("behind %d: got %v, %v, want %v, %v", test.after, next, more, test.next, test.more)
		}
	}
}
