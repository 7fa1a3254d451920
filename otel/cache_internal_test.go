package otel

import "testing"

// TestCacheIsBounded looks inside, since from outside the bound shows only in
// the memory that it saves.
func TestCacheIsBounded(t *testing.T) {
	t.Parallel()
	computed := 0
	c := newCache(func(key int) int { computed++; return -key })
	for range 2 {
		for key := range maxCached + 10 {
			if got := c.get(key); got != -key {
				t.Fatalf("value of %d: got %d, want %d", key, got, -key)
			}
		}
	}
	if got := len(c.values); got != maxCached {
		t.Errorf("values kept: got %d, want %d", got, maxCached)
	}
	if want := maxCached + 20; computed != want {
		t.Errorf("values computed: got %d, want %d: each once, and twice what is not kept", computed, want)
	}
}
