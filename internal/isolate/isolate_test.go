package isolate_test

import (
	"bytes"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type function func() error

func (f function) Run() error { return f() }

// TestWhatComesBack has calls end in every way. None costs the runner.
func TestWhatComesBack(t *testing.T) {
	t.Parallel()
	failed := errors.New("no luck")
	returned := isolate.NewPanic("returned")
	tests := []struct {
		name   string
		call   function
		raised any   // what it panics with
		want   error // else
	}{
		{name: "nothing", call: func() error { return nil }},
		{name: "an error", call: func() error { return failed }, want: failed},
		{name: "a panic that is returned", call: func() error { return returned }, want: returned},
		{name: "a panic", call: func() error { panic("raised") }, raised: "raised"},
		{name: "a panic that is passed on", call: func() error { panic(returned) }, raised: "returned"},
		{name: "the end of the goroutine", call: func() error { runtime.Goexit(); return nil }, want: isolate.ErrGoexit},
		{name: "its end, and a panic on the way", call: func() error {
			defer func() { panic("on the way") }()
			runtime.Goexit()
			return nil
		}, raised: "on the way"},
	}
	var p isolate.Runner[function]
	for range 2 {
		for _, test := range tests {
			err := <-p.Begin(test.call)
			if test.raised == nil {
				if err != test.want {
					t.Errorf("%s: got %T, %v, want %T", test.name, err, err, test.want)
				}
				continue
			}
			got, ok := err.(*isolate.Panicked)
			if !ok || got.Value != test.raised {
				t.Errorf("%s: got %T, %v, want %q raised", test.name, err, err, test.raised)
			} else if !bytes.Contains(got.Stack, []byte("TestWhatComesBack")) {
				t.Errorf("%s: got the stack\n%s\nwant that of the call", test.name, got.Stack)
			}
		}
	}
	p.Dismiss()
}

// TestAnAbandonedCallEndsLater, and the next does not wait for it.
func TestAnAbandonedCallEndsLater(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"returns": func() {}, "panics": func() { panic("late") }, "ends its goroutine": runtime.Goexit} {
		synctest.Test(t, func(t *testing.T) {
			var p isolate.Runner[function]
			release := make(chan struct{})
			p.Begin(func() error { <-release; end(); return nil })
			var ended atomic.Int64
			p.Abandon(func() { ended.Add(1) })
			later := errors.New("the next")
			if err := <-p.Begin(func() error { return later }); err != later {
				t.Errorf("%s: next call: got %v, want its own error", name, err)
			}
			p.Dismiss()
			synctest.Wait()
			if n := ended.Load(); n != 0 {
				t.Errorf("%s: ended before the call returned: got %d times, want none", name, n)
			}
			close(release)
			synctest.Wait()
			if n := ended.Load(); n != 1 {
				t.Errorf("%s: ended: got %d times, want once", name, n)
			}
		})
	}
}

// TestTheAbandonedAreCountedOnce abandons calls that end at that moment: whoever
// counts them before never has less than none, and in the end none.
func TestTheAbandonedAreCountedOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(){"returns": func() {}, "ends its goroutine": runtime.Goexit} {
		var alive, least atomic.Int64
		gone := make(chan struct{})
		const rounds = 1000
		for range rounds {
			var p isolate.Runner[function]
			release := make(chan struct{})
			p.Begin(func() error { <-release; end(); return nil })
			close(release)
			alive.Add(1)
			p.Abandon(func() {
				if n := alive.Add(-1); n < 0 {
					least.Store(n)
				}
				gone <- struct{}{}
			})
		}
		for range rounds {
			<-gone
		}
		if least.Load() != 0 || alive.Load() != 0 {
			t.Errorf("%s: got at least %d and in the end %d, want none", name, least.Load(), alive.Load())
		}
	}
}

// TestDismissWaits for the call that runs, and for nothing where none ever did.
func TestDismissWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p isolate.Runner[function]
		p.Dismiss()
		release := make(chan struct{})
		var returned, dismissed atomic.Bool
		p.Begin(func() error { <-release; returned.Store(true); return nil })
		go func() {
			p.Dismiss()
			if dismissed.Store(true); !returned.Load() {
				t.Error("dismissed: the call has not returned")
			}
		}()
		synctest.Wait()
		if dismissed.Load() {
			t.Error("dismissed: got so while the call runs")
		}
		close(release)
		synctest.Wait()
		if !dismissed.Load() {
			t.Error("dismissed: got no end, though the call has returned")
		}
		p.Dismiss()
	})
}

// counted is a call that is no closure.
type counted struct{ runs *int }

func (c counted) Run() error { *c.runs++; return nil }

// TestACallAllocatesNothing, and so has no goroutine of its own.
func TestACallAllocatesNothing(t *testing.T) {
	var p isolate.Runner[counted]
	defer p.Dismiss()
	var runs int
	if n := testing.AllocsPerRun(1000, func() { <-p.Begin(counted{&runs}) }); n != 0 {
		t.Errorf("allocations of a call: got %v, want none", n)
	}
	if runs != 1001 {
		t.Errorf("runs: got %d, want 1001", runs)
	}
}

func BenchmarkCall(b *testing.B) {
	var p isolate.Runner[counted]
	defer p.Dismiss()
	var runs int
	b.ReportAllocs()
	for b.Loop() {
		<-p.Begin(counted{&runs})
	}
}
