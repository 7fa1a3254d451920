package bus_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

func TestWakeupsReachEveryListener(t *testing.T) {
	t.Parallel()
	var wakeups bus.Wakeups
	var first, second []bus.Wake
	wakeups.Send(bus.Wake{}) // nobody listens yet
	stopFirst := wakeups.Listen(func(w bus.Wake) { first = append(first, w) })
	stopSecond := wakeups.Listen(func(w bus.Wake) { second = append(second, w) })
	wakeups.Send(bus.Wake{PayloadTypes: []string{"order.placed"}, Expected: true})
	stopFirst()
	wakeups.Send(bus.Wake{})
	stopSecond()
	wakeups.Send(bus.Wake{})
	if len(first) != 1 || !first[0].Expected || !slices.Equal(first[0].PayloadTypes, []string{"order.placed"}) {
		t.Errorf("the first listener got %+v, want the wake-up sent while it listened", first)
	}
	if len(second) != 2 || second[1].Expected || second[1].PayloadTypes != nil {
		t.Errorf("the second listener got %+v, want the two sent while it listened", second)
	}
}

func TestWakeupsKeepListenersOfTheSameFunctionApart(t *testing.T) {
	t.Parallel()
	var wakeups bus.Wakeups
	calls := 0
	count := func(bus.Wake) { calls++ }
	stop := wakeups.Listen(count)
	defer wakeups.Listen(count)()
	stop()
	stop() // again: changes nothing
	wakeups.Send(bus.Wake{})
	if calls != 1 {
		t.Errorf("got %d calls, want 1: one of two stopped", calls)
	}
}

func TestWakeupsOfRegistriesAreApart(t *testing.T) {
	t.Parallel()
	one, other := mustRegister(t), mustRegister(t)
	calls := 0
	defer one.Wakeups().Listen(func(bus.Wake) { calls++ })()
	other.Wakeups().Send(bus.Wake{})
	one.Wakeups().Send(bus.Wake{})
	if calls != 1 {
		t.Errorf("got %d calls, want only the one through the listener's registry", calls)
	}
}

func TestWakeupsAreSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	const goroutines, sends = 8, 200
	var wakeups bus.Wakeups
	var total atomic.Int64
	defer wakeups.Listen(func(bus.Wake) {
		total.Add(1)
		runtime.Gosched() // let the others in, in the middle of a Send
	})()
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for range sends {
				stopped, heard := false, 0 // guarded by the promise that nothing is sent after stop
				stop := wakeups.Listen(func(bus.Wake) {
					if heard++; stopped {
						t.Error("a listener was called after stop returned")
					}
				})
				wakeups.Send(bus.Wake{})
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

func TestRegistriesMayShareWakeups(t *testing.T) {
	t.Parallel()
	shared := new(bus.Wakeups)
	one, err := bus.RegistryConfig{Wakeups: shared}.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	other, err := bus.RegistryConfig{Wakeups: shared}.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	heard := 0
	defer other.Wakeups().Listen(func(bus.Wake) { heard++ })()
	one.Wakeups().Send(bus.Wake{})
	if heard != 1 {
		t.Errorf("the other registry heard %d wake-ups, want 1", heard)
	}
}
