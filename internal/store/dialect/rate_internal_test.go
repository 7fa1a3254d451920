package dialect

import (
	"testing"
	"time"
)

func TestRatesOfAnySizeAreCounted(t *testing.T) {
	now := time.Now()
	for _, r := range []Rate{{N: 1, Per: time.Minute, Burst: 1}, {N: 3, Per: time.Second, Burst: 3},
		{N: 1_000_000, Per: time.Second, Burst: 1_000_000},
		{N: 50_000_000_000, Per: 24 * time.Hour, Burst: 50_000_000_000}} {
		if n, wait := r.allows(now, now.Add(-time.Hour), r.Burst+1); n != r.Burst || wait <= 0 {
			t.Errorf("%+v, rested: got %d and a wait of %s, want the burst, and a wait", r, n, wait)
		}
		if n, wait := r.allows(now, now.Add(r.after(r.Burst)), 1); n != 0 || wait <= 0 || wait > r.after(1)+time.Microsecond {
			t.Errorf("%+v, used up: got %d and a wait of %s, want none, and %s", r, n, wait, r.after(1))
		}
	}
}
