package dialect

import (
	"reflect"
	"testing"
	"time"
)

// TestPollsOfPartsAddUp: indexes are those of all wants, and times are the nearest.
func TestPollsOfPartsAddUp(t *testing.T) {
	t.Parallel()
	var sum Poll
	at := time.Unix(100, 0)
	sum.Add(Poll{Due: []int{1}, First: []Position{{ID: 7}}, Killers: []int{0}, Next: 5 * time.Second, Lease: time.Second,
		Now: at}, 0)
	sum.Add(Poll{Due: []int{0}, First: []Position{{ID: 8}}, Suspects: []int{3}, Expired: true, Overdue: time.Minute,
		Now: at.Add(time.Second)}, 200)
	sum.Add(Poll{Next: 2 * time.Second, Expired: true, Overdue: time.Minute, Now: at.Add(2 * time.Second)}, 400)
	want := Poll{Due: []int{1, 200}, First: []Position{{ID: 7}, {ID: 8}}, Suspects: []int{203}, Killers: []int{0}, Expired: true,
		Overdue: time.Minute, Next: 2 * time.Second, Now: at}
	if !reflect.DeepEqual(sum, want) {
		t.Errorf("sum: got %+v, want %+v", sum, want)
	}
}
