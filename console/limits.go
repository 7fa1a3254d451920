package console

import (
	"sync"
	"time"
)

const (
	requestsPerSecond = 10
	requestsAtOnce    = 40 // a page needs a stylesheet, a script and an icon, and people open tabs
	changesPerSecond  = 1
	changesAtOnce     = 2 // a plan, and its start

	mostKnown = 10_000 // principals
)

// limits bound the rates of each principal. It is safe for concurrent use; its zero value is ready.
type limits struct {
	mu       sync.Mutex
	requests map[string]bucket
	changes  map[string]bucket
}

// bucket is what a principal had left at a time.
type bucket struct {
	left float64
	at   time.Time
}

// request takes one request, or returns how long to wait for one.
func (l *limits) request(name string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return take(&l.requests, name, requestsPerSecond, requestsAtOnce)
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
		*buckets = map[string]bucket{} // most are invented names: forgetting all does no harm
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

// warnings bound how often each is logged, so that refused clients cannot fill the log.
type warnings struct {
	mu   sync.Mutex
	last map[string]warning
}

type warning struct {
	at      time.Time
	skipped int // since then
}

// due reports whether a warning is to be logged now, and how often it was skipped.
func (w *warnings) due(text string) (due bool, skipped int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[string]warning{}
	}
	last, known := w.last[text]
	if known && time.Since(last.at) < warnEvery {
		last.skipped++
		w.last[text] = last
		return false, 0
	}
	w.last[text] = warning{at: time.Now()}
	return true, last.skipped
}

// warn logs a constant text, at most once in ten seconds.
func (c *Console) warn(text string, fields ...any) {
	due, skipped := c.warnings.due(text)
	if !due {
		return
	}
	if skipped > 0 {
		fields = append(fields, "times_before", skipped)
	}
	c.config.Logger.Warn(text, fields...)
}
