package engine

import "testing"

// TestTransactionsFitThePool: a quarter of a large pool is left to the application, and a small one is used as it is.
func TestTransactionsFitThePool(t *testing.T) {
	t.Parallel()
	for pool, want := range map[int]int{0: 16, 3: 1, 4: 1, 6: 3, 11: 8, 14: 8, 20: 12, 40: 27, 100: 72} {
		if got := (ProcessorConfig{}).withDefaults(true, pool).TxConcurrency; got != want {
			t.Errorf("a pool of %d: got %d transactional consumers, want %d", pool, got, want)
		}
	}
	if got := (ProcessorConfig{Fetchers: 1}).withDefaults(true, 3).TxConcurrency; got != 1 {
		t.Errorf("a pool of 3 with 1 fetcher: got %d transactional consumers, want 1", got)
	}
	if got := (ProcessorConfig{TxConcurrency: 5}).withDefaults(true, 100).TxConcurrency; got != 5 {
		t.Errorf("5 of them: got %d", got)
	}
	if got := (ProcessorConfig{}).withDefaults(false, 20).TxConcurrency; got != 1 {
		t.Errorf("without row locks: got %d, want 1", got)
	}
}
