package engine

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// maxSequence is how long a sequence of messages of one key goes on, so that other processes
	// get their share of a long key. firstSequence bounds a sequence until the duration of a
	// message is known.
	maxSequence   = 250 * time.Millisecond
	firstSequence = 50
	// Looks at everything, and at everything from the very beginning, take at most this share of
	// the time.
	scanShare   = 10
	laneSweeps  = 20
	leastSweep  = time.Second
	longestWait = 10 * time.Second // between looks at everything, however long they take
	// widestLook bounds the messages of one look. Each look covers twice as many as the one before
	// while they do not find enough.
	widestLook = 4000
)

// lanes is the dispatcher's state of the keyed messages of one consumer, under one of its names. It
// is guarded by dispatcher.mu.
//
// A scan looks at one part of the messages after the other, in the order of their ranks, while it
// does not find enough. It begins at the floor, below which nothing was found. If scans of
// everything take too long, it begins at the tail, where the last one ended.
type lanes struct {
	store.Source
	of        *consumer
	active    bool // there may be messages to claim
	wakeups   int
	frees     int // counts settles that have freed lanes
	notBefore time.Time
	idle      time.Time // until then nothing is to be found, unless something is new or a cooldown ends
	stuck     bool      // some messages have crashed
	left      bool      // the last claims saw messages and did not take them
	blocked   bool      // the last scan of everything, in order, saw only messages that could not run
	deep      []int64   // lanes that may have more
	cooldowns cooldowns
	unused    map[int64]int // by lane: messages that the key rate counted and that did not start
	cursor    int64
	empty     bool // the last look found nothing
	wide      int  // messages for the next look to cover, since the last did not find enough

	floor, tail int64
	scanning    bool
	covered     int           // the wakeups that looks at the tail have covered
	hint        int64         // how far the scan has come
	whole       bool          // it has begun at the floor
	sweeping    bool          // ... or at the very beginning
	spent       time.Duration // by looks of the scan that did not find enough
	costly      bool          // the last scan of everything needed several
	again       bool          // another scan of everything is wanted
	nextWhole   time.Time     // when that may begin
	nextSweep   time.Time
	nextLook    time.Time // when a poll may look from the very beginning
	last        int64     // the rank of the newest message seen
}

// unsupported returns an error if a consumer needs what the database does not have.
func unsupported(c bus.Consumer, s *store.Store) error {
	var errs []error
	config := c.Config()
	if config.Aging > 0 {
		errs = append(errs, s.Priorities())
	}
	if access.KeyConcurrency(&config) > 0 || config.KeyRate > 0 {
		errs = append(errs, s.AnyOrder())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("outbox: consumer %q: %w", c.Name(), err)
	}
	return nil
}

// lanesOf returns the lanes of a keyed consumer, one for each of its names.
func lanesOf(c *consumer) (all []*lanes) {
	names := access.Names(c.Consumer)
	for _, name := range names {
		source := store.Source{
			Name: name, Names: names, Payloads: access.PayloadTypes(c.Consumer),
			PerKey: c.keyConcurrency(), KeyRate: flow.KeyRateOf(c.Consumer), Parks: c.settings.Ordered == bus.BlockKey,
		}
		all = append(all, &lanes{of: c, Source: source, unused: make(map[int64]int)})
	}
	return all
}

// part returns the part of a claim for these lanes.
func (l *lanes) part() part {
	return part{consumer: l.of, lanes: l, wakeups: l.wakeups, frees: l.frees}
}

func (l *lanes) activate() {
	l.active, l.blocked, l.wakeups, l.idle = true, false, l.wakeups+1, time.Time{}
}

// pending reports whether there may be messages to claim now, and if not, when to look again.
func (l *lanes) pending(now time.Time) (ready bool, until time.Time) {
	until = later(l.notBefore, l.cooldowns.sooner(l.idle))
	return l.active && !now.Before(until), until
}

// request returns a request for up to limit messages.
func (l *lanes) request(now time.Time, limit int) *store.Lanes {
	if !l.scanning {
		l.begin(now)
	}
	hint := l.hint
	if l.covered != l.wakeups && l.whole { // new messages do not wait for the end of the scan
		hint = max(l.newest(), l.hint)
	}
	l.covered = l.wakeups
	deep := append(l.cooldowns.take(now, limit), l.deep...)
	l.deep = nil
	unused := maps.Clone(l.unused)
	clear(l.unused)
	return &store.Lanes{
		Unused: unused, Source: l.Source, Run: l.of.sequenceLength(limit),
		Hint: hint, Cursor: l.cursor, Sticky: deep, Walk: l.empty, Look: l.wide,
	}
}

// begin begins a scan.
func (l *lanes) begin(now time.Time) {
	l.scanning, l.spent, l.wide = true, 0, 0
	if l.whole = !now.Before(l.nextWhole); !l.whole {
		l.hint = l.newest()
		return
	}
	if !l.costly { // its first look covers the tail as well
		l.covered = l.wakeups
	}
	l.again, l.left, l.hint = false, false, l.floor
	if l.sweeping = !now.Before(l.nextSweep); l.sweeping {
		l.hint = 0
	}
}

// bounded reports whether a key may run only so many messages that others wait for their results.
func (l *lanes) bounded() bool { return l.PerKey > 0 && l.PerKey < store.Unbounded }

// claimed accounts for the result of a claim. A scan goes on while there may be more behind the
// look and it found less than there is capacity for.
func (l *lanes) claimed(plan claimPlan, c store.Claim, now time.Time) {
	news, from := c.News, plan.request.Lanes.Hint
	if c.Unasked { // its looks did not happen
		l.deep, l.covered = append(plan.request.Lanes.Sticky, l.deep...), l.wakeups-1
		l.waitForRate(now, c.Wait)
		return
	}
	l.last, l.cursor = max(l.last, news.Last), news.Walked
	l.left = l.left || news.Left
	if news.Left && l.frees != plan.parts[0].frees { // the rest may be free by now
		l.free(nil, 0)
	}
	l.cooldowns.add(news.Spent, now)
	l.empty = len(c.Messages) == 0 && news.Full
	if c.Wait > 0 {
		l.waitForRate(now, c.Wait)
	}
	if from != l.hint || !l.scanning { // a look at new messages, or another claim has gone on
		if !news.Full && from >= l.newest() {
			l.tail = max(l.tail, news.Last)
		}
		return
	}
	if l.whole && news.First > 0 && (l.sweeping || from == l.floor) {
		l.floor, l.hint = news.First-1, news.First-1 // dead entries before it are walked once
	}
	if l.sweeping {
		l.sweeping, l.nextSweep = false, now.Add(max(laneSweeps*now.Sub(plan.began), leastSweep))
	}
	enough := len(c.Messages) >= plan.request.Limit || c.Cut && len(c.Messages) > 0
	switch {
	case enough:
		l.wide /= 2
		// Returned messages lie before the hint: a sweep finds them even while this scan is busy.
		l.scanning = !l.whole || now.Before(later(l.nextWhole, l.nextSweep))
		return
	case news.Full:
		l.spent, l.wide = l.spent+now.Sub(plan.began), min(max(2*l.wide, plan.request.Limit), widestLook)
		l.goOn(news.Last)
		return
	}
	l.scanning, l.tail = false, max(l.tail, l.hint, news.Last)
	if l.whole {
		l.tail = max(l.hint, news.Last)
		l.costly = l.spent > 0
		l.nextWhole = now.Add(min(scanShare*l.spent, longestWait))
	}
	switch {
	case l.wakeups != plan.parts[0].wakeups:
	case l.again: // once it may be
		l.idle = l.nextWhole
	case news.Wait > 0:
		l.again, l.idle = true, later(l.nextWhole, now.Add(news.Wait))
	case len(l.cooldowns) > 0:
		l.idle = l.cooldowns[len(l.cooldowns)-1].till
	default:
		l.active, l.blocked = false, l.whole && l.left && l.PerKey == 0
	}
}

// waitForRate has no claim begin before the consumer's rate allows more.
func (l *lanes) waitForRate(now time.Time, wait time.Duration) {
	l.notBefore = now.Add(wait)
	l.of.rateWaits.begin(now, l.notBefore)
}

// goOn continues the scan behind a look. Several messages may be due at one instant. Those of the
// last instant are looked at again, unless they alone exceed a look.
func (l *lanes) goOn(last int64) {
	if l.PerKey > 0 && (last-1 > l.hint || l.wide < widestLook) {
		last--
	}
	l.hint = max(l.hint, last)
}

// newest returns where looks for new messages begin: where the last scan ended. For instants it is
// earlier, since others may have committed there meanwhile.
func (l *lanes) newest() int64 {
	if l.PerKey > 0 {
		return max(l.tail-lateInstants, 0)
	}
	return l.tail
}

// failed moves the next look to where messages are new, because a look from the beginning took too
// long.
func (l *lanes) failed(now time.Time) {
	l.scanning, l.sweeping, l.deep = false, false, nil
	l.nextWhole, l.nextSweep = now.Add(longestWait), now.Add(laneSweeps*longestWait)
}

// free notes that more lanes may be claimed.
func (l *lanes) free(deep []int64, most int) {
	l.frees++
	if !l.left && len(deep) == 0 {
		return
	}
	if len(l.deep) < most {
		l.deep = append(l.deep, deep...)
	}
	l.again = l.again || l.left
	l.activate()
}
