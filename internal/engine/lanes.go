package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// maxRun is how long a run of messages of one key goes on, so that other processes have
	// their share of a key that has many; and firstRun how many messages one has until it is
	// known how long they take.
	maxRun   = 250 * time.Millisecond
	firstRun = 50
	// Looks at everything, and from the very beginning on, take one part in so many of the time.
	scanShare   = 10
	laneSweeps  = 20
	leastSweep  = time.Second
	longestWait = 10 * time.Second // between looks at everything, however long they take
	// widestLook is the most messages that a look is at: each is at twice as many as the one
	// before, while they do not find enough.
	widestLook = 4000
)

// lanes is what the dispatcher keeps of the messages with keys of one consumer, under one of
// its names. All of it is guarded by dispatcher.mu.
//
// A scan looks at one part of the messages after the other, in the order of their ranks, for as
// long as it does not find enough to take. It begins at the floor, below which nothing was
// found, or if scans of everything take too long, at the tail, where the last one ended.
type lanes struct {
	store.Source
	of        *consumer
	active    bool // there may be messages to claim
	wakeups   int
	frees     int // counts settles that have freed lanes
	notBefore time.Time
	idle      time.Time // until then nothing may be found, unless something is new, or rests no more
	stuck     bool      // some have crashed
	left      bool      // the last claims have seen messages that they did not take
	deep      []int64   // lanes that may have more
	resting   resting
	unused    map[int64]int // of lanes: messages that were claimed of the key rate and did not start
	cursor    int64
	barren    bool // the last look brought nothing
	wide      int  // so many messages the next look is at, since the last did not find enough

	floor, tail int64
	scanning    bool
	heeded      int           // the wakeups that looks at the tail have followed
	hint        int64         // so far the scan has come
	whole       bool          // it has begun at the floor
	sweeping    bool          // ... or at the very beginning
	spent       time.Duration // on looks of the scan that did not find enough
	costly      bool          // the last scan of everything needed several
	again       bool          // another of everything is wanted
	nextWhole   time.Time     // when that may begin
	nextSweep   time.Time
	last        int64 // the rank of the newest message that was seen
}

// unsupported reports what a consumer asks for that the database does not have.
func unsupported(c bus.Consumer, s *store.Store) error {
	var errs []error
	if c.Prioritizes() {
		errs = append(errs, s.Priorities())
	}
	if c.KeyConcurrency() > 0 || c.Config().KeyRate > 0 {
		errs = append(errs, s.AnyOrder())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("outbox: consumer %q: %w", c.Name(), err)
	}
	return nil
}

// lanesOf is where messages of a consumer are that have keys: under each of its names.
func lanesOf(c *consumer) (all []*lanes) {
	names := c.Names()
	for _, name := range names {
		source := store.Source{Name: name, Names: names, Payloads: c.PayloadTypes(), PerKey: c.KeyConcurrency(), KeyRate: flow.KeyRateOf(c.Consumer)}
		all = append(all, &lanes{of: c, Source: source, unused: make(map[int64]int)})
	}
	return all
}

// part is what a claim is to ask for.
func (l *lanes) part() part {
	return part{consumer: l.of, lanes: l, wakeups: l.wakeups, frees: l.frees}
}

func (l *lanes) activate() { l.active, l.wakeups, l.idle = true, l.wakeups+1, time.Time{} }

// pending reports whether there may be messages to claim now, and if not, until when to wait.
func (l *lanes) pending(now time.Time) (ready bool, until time.Time) {
	until = later(l.notBefore, l.resting.sooner(l.idle))
	return l.active && !now.Before(until), until
}

// request asks for so many messages.
func (l *lanes) request(now time.Time, limit int) *store.Lanes {
	if !l.scanning {
		l.begin(now)
	}
	hint := l.hint
	if l.heeded != l.wakeups && l.whole { // what is new does not wait for the end of the scan
		hint = max(l.newest(), l.hint)
	}
	l.heeded = l.wakeups
	deep := append(l.resting.take(now, limit), l.deep...)
	l.deep = nil
	unused := maps.Clone(l.unused)
	clear(l.unused)
	return &store.Lanes{Unused: unused, Source: l.Source, Parks: l.parks(), Run: l.of.runLength(limit), Hint: hint, Cursor: l.cursor, Sticky: deep, Walk: l.barren, Look: l.wide}
}

// begin begins a scan.
func (l *lanes) begin(now time.Time) {
	l.scanning, l.spent, l.wide = true, 0, 0
	if l.whole = !now.Before(l.nextWhole); !l.whole {
		l.hint = l.newest()
		return
	}
	if !l.costly { // its first look comes to the tail as well
		l.heeded = l.wakeups
	}
	l.again, l.left, l.hint = false, false, l.floor
	if l.sweeping = !now.Before(l.nextSweep); l.sweeping {
		l.hint = 0
	}
}

// bounded reports whether so many of a key run that others wait for them to be settled.
func (l *lanes) bounded() bool { return l.PerKey > 0 && l.PerKey < store.Unbounded }

// exhausted reports whether more messages wait for those that are claimed, of whose keys no more
// may run at once. A batch would wait for them in vain.
func (c *consumer) exhausted(now time.Time) bool {
	return slices.ContainsFunc(c.lanes, func(l *lanes) bool {
		ready, _ := l.pending(now)
		return l.bounded() && l.left && !ready
	})
}

// parks reports whether a poisoned message blocks its key.
func (l *lanes) parks() bool { return l.of.settings.Ordered == bus.BlockKey }

// runLength is how many messages of one key come together, at most.
func (c *consumer) runLength(limit int) int {
	switch {
	case c.KeyConcurrency() > 0: // they do not follow each other
		return min(c.KeyConcurrency(), limit)
	case c.group > 1: // what shares a transaction
		return min(c.group, limit)
	case c.pace == 0:
		return min(firstRun, limit)
	case c.pace*time.Duration(limit) < maxRun:
		return limit
	}
	return max(int(maxRun/c.pace), 1)
}

// ran notes how long each of the messages of a run took, about.
func (c *consumer) ran(n int, took time.Duration) {
	if n == 0 {
		return
	}
	each := max(took/time.Duration(n), 1)
	if c.pace == 0 {
		c.pace = each
	}
	c.pace = (3*c.pace + each) / 4
}

// claimed accounts for what a claim has found. A scan goes on while there is
// more behind what it has looked at, and less was found than there is room for.
func (l *lanes) claimed(o order, c store.Claim, now time.Time) {
	news, from := c.News, o.request.Lanes.Hint
	if c.Unasked { // what it has not looked at stays as it was
		l.deep, l.heeded = append(o.request.Lanes.Sticky, l.deep...), l.wakeups-1
		l.notBefore = now.Add(c.Wait)
		l.of.spent.hold(now, l.notBefore)
		return
	}
	l.last, l.cursor = max(l.last, news.Last), news.Walked
	if l.left = l.left || news.Left; news.Left && l.frees != o.parts[0].frees { // what it left may be free by now
		l.free(nil, 0)
	}
	l.resting.add(news.Spent, now)
	l.barren = len(c.Messages) == 0 && news.Full
	if c.Wait > 0 {
		l.notBefore = now.Add(c.Wait)
		l.of.spent.hold(now, l.notBefore)
	}
	if from != l.hint || !l.scanning { // at what is new, or another claim has gone on
		if !news.Full && from >= l.newest() {
			l.tail = max(l.tail, news.Last)
		}
		return
	}
	if l.whole && news.First > 0 && (l.sweeping || from == l.floor) {
		l.floor, l.hint = news.First-1, news.First-1 // what is dead before it is walked once
	}
	if l.sweeping {
		l.sweeping, l.nextSweep = false, now.Add(max(laneSweeps*now.Sub(o.began), leastSweep))
	}
	enough := len(c.Messages) >= o.request.Limit || c.Cut && len(c.Messages) > 0
	switch {
	case enough:
		l.wide /= 2
		// What others give back is before the hint: a sweep finds it, however long this one goes on finding enough.
		l.scanning = !l.whole || now.Before(later(l.nextWhole, l.nextSweep))
		return
	case news.Full:
		l.spent, l.wide = l.spent+now.Sub(o.began), min(max(2*l.wide, o.request.Limit), widestLook)
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
	case l.wakeups != o.parts[0].wakeups:
	case l.again: // once it may be
		l.idle = l.nextWhole
	case news.Wait > 0:
		l.again, l.idle = true, later(l.nextWhole, now.Add(news.Wait))
	case len(l.resting) > 0:
		l.idle = l.resting[len(l.resting)-1].till
	default:
		l.active = false
	}
}

// goOn has the scan go on behind what a look has come to. Several messages may be due at one
// instant: those of the last one are looked at again, unless there are more of them than a look
// is at.
func (l *lanes) goOn(last int64) {
	if l.PerKey > 0 && (last-1 > l.hint || l.wide < widestLook) {
		last--
	}
	l.hint = max(l.hint, last)
}

// newest is where looks begin at what is new: where the last scan ended, and some way back, as
// instants go, where others may have committed since.
func (l *lanes) newest() int64 {
	if l.PerKey > 0 {
		return max(l.tail-lateInstants, 0)
	}
	return l.tail
}

// failed has the next look begin where messages are new, since that from the beginning took
// too long.
func (l *lanes) failed(now time.Time) {
	l.scanning, l.sweeping, l.deep = false, false, nil
	l.nextWhole, l.nextSweep = now.Add(longestWait), now.Add(laneSweeps*longestWait)
}

// freed has messages be claimed that waited for others of their keys, now that these were
// settled, or that have come back themselves.
func (d *dispatcher) freed(claims []*lease, results []store.Result) {
	if !slices.ContainsFunc(claims, func(l *lease) bool { return l.lanes != nil }) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	of := make(map[int64]*lanes)
	for _, claim := range claims {
		if l := claim.lanes; l != nil {
			of[claim.id] = l
			if l.PerKey < store.Unbounded { // else nothing has waited for it
				l.free(claim.deep, d.config.BatchSize)
			}
			for _, other := range l.of.lanes { // what comes behind it may be stored under another name
				if other != l && l.PerKey == 0 {
					other.again = true
					other.activate()
				}
			}
		}
	}
	for _, r := range results {
		if l := of[r.Claim]; l != nil && r.Outcome != store.Done {
			if r.Outcome == store.Release {
				l.free([]int64{r.Lane}, d.config.BatchSize)
			}
			l.floor, l.again = min(l.floor, r.Rank-1), true
			if l.whole && l.spent == 0 { // the scan has not left the floor
				l.hint = min(l.hint, l.floor)
			}
		}
	}
	d.room.Signal()
}

// free notes that lanes may be claimed, besides those that were seen and are held.
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

// allLanes are those of all consumers.
func (d *dispatcher) allLanes() (all []*lanes) {
	for _, c := range d.consumers {
		all = append(all, c.lanes...)
	}
	return all
}

// adopt has messages with keys be claimed of consumers that go by keys no more, or are
// not here, and returns the names of the latter.
func (d *dispatcher) adopt(names []string) (unknown []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		c, ok := d.byName[name]
		switch {
		case !ok:
			unknown = append(unknown, name)
		case c.lanes == nil:
			c.lanes = lanesOf(c)
		}
	}
	return unknown
}

// stuckLocked lists where to look for messages with keys that have crashed, of consumers that
// may start one.
func (d *dispatcher) stuckLocked(may func(*consumer) bool) (stuck []store.Lanes) {
	for _, l := range d.allLanes() {
		if l.stuck && may(l.of) {
			stuck = append(stuck, store.Lanes{Source: l.Source, Parks: l.parks()})
		}
	}
	return stuck
}

// lanesAmong returns the lanes of the consumers that are wanted.
func (d *dispatcher) lanesAmong(wants []store.Want) (all []*lanes) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wanted := d.amongLocked(wants)
	return slices.DeleteFunc(d.allLanes(), func(l *lanes) bool { return !wanted(l.of) })
}

// stuckOf is stuckLocked for the consumers that are wanted.
func (d *dispatcher) stuckOf(wants []store.Want) []store.Lanes {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stuckLocked(d.amongLocked(wants))
}

// amongLocked returns what reports whether something of a consumer is wanted.
func (d *dispatcher) amongLocked(wants []store.Want) func(*consumer) bool {
	return func(c *consumer) bool {
		return slices.ContainsFunc(wants, func(w store.Want) bool { return d.byName[w.Consumer] == c })
	}
}
