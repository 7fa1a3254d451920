package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// This test is internal: what is known of a destination shows outside only as minutes of waiting.

// TestWhatIsKnownOfADestinationGrowsOld: somebody else may have published to it, so that it was there all the time.
func TestWhatIsKnownOfADestinationGrowsOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, records := new(missing), []broker.Record{{Destination: "orders"}}
		note := func(want time.Duration) {
			t.Helper()
			m.note(records, []error{broker.ErrNoDestination})
			if got := m.wait(records[0]); got != want {
				t.Errorf("after a look: got a wait of %s, want %s", got, want)
			}
		}
		note(time.Second)
		pass := func(d time.Duration) { <-time.After(d) }
		for _, d := range []time.Duration{time.Second, time.Second, 2 * time.Second, 4 * time.Second} {
			pass(d)
		}
		note(8 * time.Second) // it is still missing
		pass(10 * time.Second)
		note(18 * time.Second)
		pass(3 * time.Minute)
		note(time.Second) // missing anew, as far as anybody knows here
		for range 20 {    // looks go on
			pass(m.wait(records[0]))
			m.note(records, []error{broker.ErrNoDestination})
		}
		note(5 * time.Minute)
		m.note(records, []error{nil})
		note(time.Second)
	})
}
