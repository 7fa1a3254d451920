package otel

import (
	"maps"
	"sync"
	"sync/atomic"
)

// maxCached bounds a cache. Applications have fewer payload types and consumers;
// names that are made up at run time must not fill the memory.
const maxCached = 1000

// cache keeps what is computed from a name. Reading takes no lock and allocates
// nothing, since every message reads.
type cache[K comparable, V any] struct {
	compute func(K) V
	values  atomic.Pointer[map[K]V]
	writing sync.Mutex
}

func (c *cache[K, V]) get(key K) V {
	if values := c.values.Load(); values != nil {
		if value, ok := (*values)[key]; ok {
			return value
		}
	}
	return c.add(key)
}

func (c *cache[K, V]) add(key K) V {
	c.writing.Lock()
	defer c.writing.Unlock()
	var old map[K]V
	if values := c.values.Load(); values != nil {
		old = *values
	}
	value, ok := old[key]
	if ok {
		return value
	}
	value = c.compute(key)
	if len(old) < maxCached {
		values := make(map[K]V, len(old)+1)
		maps.Copy(values, old)
		values[key] = value
		c.values.Store(&values)
	}
	return value
}
