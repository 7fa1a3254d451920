package engine

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// TestHandsAreUsedAgain, and are gone once nobody needs them: also one whose work ended it.
func TestHandsAreUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all sync.WaitGroup
		h := newHands(&all)
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
		begun.Add(2 * maxIdleHands)
		end.Add(1)
		for range 2 * maxIdleHands {
			h.do(func() {
				begun.Done()
				end.Wait()
			})
		}
		begun.Wait()
		end.Done()
		synctest.Wait()
		if idle := h.idle.Load(); idle != maxIdleHands {
			t.Errorf("got %d that are idle, want no more than %d to stay", idle, maxIdleHands)
		}
		h.dismiss()
		all.Wait()
	})
}
