package console

import (
	"sync"
	"time"
)

const (
	asksPerSecond    = 10
	asksAtOnce       = 40 // a page brings its stylesheet, script and icon, and people open tabs
	changesPerSecond = 1
	changesAtOnce    = 2 // a plan, and its start

	mostKnown = 10_000 // principals of whom is known what they have left
)

// limits bound what one principal can ask for. It is safe for concurrent use; its zero value is ready.
type limits struct {
	mu      sync.Mutex
	asks    map[string]bucket
	changes map[string]bucket
}

// bucket is what a client had left at a time.
type bucket struct {
	left float64
	at   time.Time
}

// ask takes one request, or returns how long to wait for one.
func (l *limits) ask(name string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return take(&l.asks, name, asksPerSecond, asksAtOnce)
}

// change takes one change, or returns how long to wait for one.
func (l *limits) change(name string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return take(&l.changes, name, changesPerSecond, changesAtOnce)
}

func take(buckets *map[string]bucket, name string, perSecond, atOnce float64) time.Duration {
	now := time.Now()
	b, known := (*buckets)[name]
	if !known && len(*buckets) >= mostKnown || *buckets == nil {
		*buckets = map[string]bucket{} // so many names are made up, so forgetting the known ones does no harm
	}
	if !known {
		b = bucket{left: atOnce, at: now}
	}
	b.left = min(atOnce, b.left+now.Sub(b.at).Seconds()*perSecond)
	b.at = now
	var wait time.Duration
	if b.left < 1 {
		wait = max(time.Duration((1-b.left)/perSecond*float64(time.Second)), time.Millisecond)
	} else {
		b.left--
	}
	(*buckets)[name] = b
	return wait
}

const warnEvery = 10 * time.Second

// warned keeps refused clients from filling the log: each thing is logged once in a while.
type warned struct {
	mu   sync.Mutex
	last map[string]lastSaid
}

type lastSaid struct {
	at   time.Time
	more int // times that it was not said since
}

// again reports whether something is to be said now, and how often it was not.
func (w *warned) again(what string) (now bool, more int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[string]lastSaid{}
	}
	s, known := w.last[what]
	if known && time.Since(s.at) < warnEvery {
		s.more++
		w.last[what] = s
		return false, 0
	}
	w.last[what] = lastSaid{at: time.Now()}
	return true, s.more
}

// warn logs something, at most once in ten seconds. Its text is ours, never the client's.
func (c *Console) warn(what string, fields ...any) {
	if now, more := c.warned.again(what); now {
		if more > 0 {
			fields = append(fields, "times_before", more)
		}
		c.config.Logger.Warn(what, fields...)
	}
}
