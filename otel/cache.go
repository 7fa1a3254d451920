package otel

import "sync"

// maxCached bounds a cache. Applications have fewer payload types and consumers;
// names that are made up at run time must not fill the memory.
const maxCached = 1000

// cache keeps what is computed from a name. Reading allocates nothing, since every
// message reads.
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
