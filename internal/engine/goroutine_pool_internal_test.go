package engine

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// TestIdleGoroutinesAreReused also checks that they end at close, and that work may end its goroutine.
func TestIdleGoroutinesAreReused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		h := newGoroutinePool(&all)
		h.do(runtime.Goexit)
		synctest.Wait()
		for range 10 {
			h.do(func() {})
			synctest.Wait()
			if idle := h.idle.Load(); idle != 1 {
				t.Fatalf("got %d that are idle, want the one there is", idle)
			}
		}
		var begun, end sync.WaitGroup
		begun.Add(2 * maxIdleGoroutines)
		end.Add(1)
		for range 2 * maxIdleGoroutines {
			h.do(func() {
				begun.Done()
				end.Wait()
			})
		}
		begun.Wait()
		end.Done()
		synctest.Wait()
		if idle := h.idle.Load(); idle != maxIdleGoroutines {
			t.Errorf("got %d that are idle, want no more than %d to stay", idle, maxIdleGoroutines)
		}
		h.close()
		all.Wait()
	})
}
