package wakeup_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

func TestWakeupsReachEveryListener(t *testing.T) {
	t.Parallel()
	var wakeups wakeup.Hub
	var first, second []wakeup.Wake
	wakeups.Send(wakeup.Wake{}) // nobody listens yet
	stopFirst := wakeups.Listen(func(w wakeup.Wake) { first = append(first, w) })
	stopSecond := wakeups.Listen(func(w wakeup.Wake) { second = append(second, w) })
	wakeups.Send(wakeup.Wake{PayloadTypes: []string{"order.placed"}, Expected: true})
	stopFirst()
	wakeups.Send(wakeup.Wake{})
	stopSecond()
	wakeups.Send(wakeup.Wake{})
	if len(first) != 1 || !first[0].Expected || !slices.Equal(first[0].PayloadTypes, []string{"order.placed"}) {
		t.Errorf("the first listener got %+v, want the wake-up sent while it listened", first)
	}
	if len(second) != 2 || second[1].Expected || second[1].PayloadTypes != nil {
		t.Errorf("the second listener got %+v, want the two sent while it listened", second)
	}
}

func TestWakeupsKeepListenersOfTheSameFunctionApart(t *testing.T) {
	t.Parallel()
	var wakeups wakeup.Hub
	calls := 0
	count := func(wakeup.Wake) { calls++ }
	stop := wakeups.Listen(count)
	defer wakeups.Listen(count)()
	stop()
	stop() // again: changes nothing
	wakeups.Send(wakeup.Wake{})
	if calls != 1 {
		t.Errorf("got %d calls, want 1: one of two stopped", calls)
	}
}

func TestWakeupsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	const goroutines, sends = 8, 200
	var wakeups wakeup.Hub
	var total atomic.Int64
	defer wakeups.Listen(func(wakeup.Wake) {
		total.Add(1)
		runtime.Gosched() // let the others in, in the middle of a Send
	})()
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for range sends {
				stopped, heard := false, 0 // guarded by the promise that nothing is sent after stop
				stop := wakeups.Listen(func(wakeup.Wake) {
					if heard++; stopped {
						t.Error("a listener was called after stop returned")
					}
				})
				wakeups.Send(wakeup.Wake{})
				stop()
				if stopped = true; heard == 0 {
					t.Error("a listener missed a wake-up sent while it listened")
				}
			}
		})
	}
	group.Wait()
	if got := total.Load(); got != goroutines*sends {
		t.Errorf("a lasting listener heard %d wake-ups, want %d", got, goroutines*sends)
	}
}
