package overview

import (
	"context"
	"sync"
	"time"
)

const (
	kept   = 2 * time.Second
	longer = 30 * time.Second // an overview of a slow database is kept
	late   = 10 * time.Second // how much older than due a cached overview may be
	share  = 50               // times its cost, an overview is kept
)

// keep returns how long an overview is kept that took so long.
func keep(took time.Duration) time.Duration { return min(max(kept, share*took), longer) }

// Cache caches the last overview. It is safe for concurrent use. The zero value is empty.
type Cache[Operation, Finding any] struct {
	mu     sync.Mutex
	last   Overview[Operation, Finding]
	until  time.Time     // when it expires
	making chan struct{} // closed once a new one is made
	// changes counts this service's changes. seen is its value when the last overview was begun,
	// so that a session sees its own changes.
	changes, seen int
}

// Change invalidates the overview.
func (c *Cache[Operation, Finding]) Change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
}

// Known returns the last overview, whether a new one is due, and whether the last one can still be
// used.
func (c *Cache[Operation, Finding]) Known() (last Overview[Operation, Finding], due, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	age := time.Since(c.until)
	return c.last, c.making == nil && age >= 0, !c.last.At.IsZero() && c.seen == c.changes && age < late
}

// Last returns the last overview, however old, and whether a new one is due. Its time is zero if
// there is none.
func (c *Cache[Operation, Finding]) Last() (last Overview[Operation, Finding], due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last, c.making == nil && (c.seen != c.changes || !time.Now().Before(c.until))
}

// Get returns the last overview, or makes one if that has expired. One caller makes it, and the
// others wait or get the last one.
func (c *Cache[Operation, Finding]) Get(
	ctx context.Context, remake func(ctx context.Context, last Overview[Operation, Finding]) (Overview[Operation, Finding], error),
) (o Overview[Operation, Finding], err error) {
	for {
		c.mu.Lock()
		known := !c.last.At.IsZero() && c.seen == c.changes
		switch {
		case known && (time.Now().Before(c.until) || c.making != nil):
			defer c.mu.Unlock()
			return c.last, nil
		case c.making == nil:
			c.making = make(chan struct{})
			last, changes := c.last, c.changes
			c.mu.Unlock()
			return c.remake(ctx, last, changes, remake)
		}
		making := c.making
		c.mu.Unlock()
		select {
		case <-making:
		case <-ctx.Done():
			return o, context.Cause(ctx)
		}
	}
}

func (c *Cache[Operation, Finding]) remake(
	ctx context.Context, last Overview[Operation, Finding], changes int,
	remake func(ctx context.Context, last Overview[Operation, Finding]) (Overview[Operation, Finding], error),
) (o Overview[Operation, Finding], err error) {
	defer c.done() // also after a panic, which a server may recover
	began := time.Now()
	made, err := remake(ctx, last)
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil { // this caller is gone: the next one makes one
		return o, context.Cause(ctx)
	}
	if err != nil {
		return o, err
	}
	c.last, c.seen, c.until = made, changes, time.Now().Add(keep(time.Since(began)))
	if made.At.Before(began) { // the database did not answer: try again soon
		c.until = time.Now().Add(kept)
	}
	return c.last, nil
}

// done lets the next caller make an overview.
func (c *Cache[Operation, Finding]) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.making)
	c.making = nil
}
