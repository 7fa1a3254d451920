package otel

import "sync"

// maxCached limits a cache. Applications have fewer payload types and consumers; the limit
// protects memory from names made at run time.
const maxCached = 1000

// cache caches a function of a name. Reads do not allocate, because every message reads.
type cache[K comparable, V any] struct {
	compute func(K) V
	mu      sync.RWMutex
	values  map[K]V
}

func newCache[K comparable, V any](compute func(K) V) *cache[K, V] {
	return &cache[K, V]{compute: compute, values: map[K]V{}}
}

func (c *cache[K, V]) get(key K) V {
	c.mu.RLock()
	value, ok := c.values[key]
	c.mu.RUnlock()
	if ok {
		return value
	}
	value = c.compute(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.values) < maxCached {
		c.values[key] = value
	}
	return value
}
