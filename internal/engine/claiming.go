package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

const (
	// pace is the least time between the starts of claims that bring little, so that each wake-up
	// does not cause a claim. It grows to mostPace where claims take long.
	pace     = 2 * time.Millisecond
	mostPace = 4 * time.Millisecond
	paceFrom = 32 // messages; claims that bring more are not paced
	// oneByOneFor is how long each consumer has its own claims after a failure.
	oneByOneFor = 10 * time.Second
	// The wait of a consumer whose claims fail. It doubles each time.
	minPostponed, maxPostponed = 50 * time.Millisecond, 10 * time.Second
)

// order is a claim for a fetcher to make.
type order struct {
	request store.ClaimRequest
	parts   []part // of the wants of the request, in their order
	drops   []int  // drop counts of the cursors of the wants
	acquits bool   // nothing runs solo any more: see store.Acquit
	began   time.Time
}

// part is what an order asks for on behalf of one consumer.
type part struct {
	*consumer
	lanes   *lanes // for messages with keys
	room    int
	asked   int
	wakeups int // of the consumer or the lanes when the order was made
	frees   int // of the lanes when the order was made
}

// lanesOf returns the lanes of a claim that brought messages with keys, else nil.
func (d *dispatcher) lanesOf(c store.Claim) *lanes {
	if len(c.Messages) == 0 || c.Messages[0].Lane == 0 {
		return nil
	}
	name := c.Messages[0].ConsumerType
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.byName[name].lanes {
		if l.Name == name {
			return l
		}
	}
	return nil
}

// nextClaim waits until there is something to claim and room for it. It returns false when the
// processor stops.
func (d *dispatcher) nextClaim() (order, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for !d.closed {
		now := time.Now()
		if wait := d.paceTo.Sub(now); wait > 0 {
			d.waitLocked(wait)
			continue
		}
		if o, ok := d.orderLocked(now); ok {
			o.began = now
			if o.request.Select == store.Clean {
				d.paceTo = now.Add(pace)
			}
			return o, true
		}
		d.waitLocked(d.laterLocked(now))
	}
	return order{}, false
}

// waitLocked waits for a change, and no longer than while unless that is zero.
func (d *dispatcher) waitLocked(while time.Duration) {
	if while > 0 {
		defer time.AfterFunc(while, func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.room.Broadcast()
		}).Stop()
	}
	d.waiting++
	d.room.Wait()
	d.waiting--
}

// claimed accounts for the result of a claim. A consumer has no more for now if it got fewer
// messages than asked for, counted from the edge of its cursors. unsure reports that a commit was
// announced and its message was not found.
func (d *dispatcher) claimed(o order, c store.Claim, now time.Time) (unsure bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.room.Signal()
	if o.request.Select != store.Clean {
		d.suspectTurn++
		d.quarantine.claimed(o.request, len(c.Messages), now)
		d.askedLocked(o.request, len(c.Messages) < o.request.Limit && !c.Cut, now)
		d.work.Broadcast() // a worker may have been kept free for nothing
		return false
	}
	switch {
	case len(c.Messages) >= paceFrom:
		d.paceTo = time.Time{}
	case len(c.Messages) < o.request.Limit && !c.Cut: // such claims take half of the time at most
		d.paceTo = later(d.paceTo, o.began.Add(min(2*now.Sub(o.began), mostPace)))
	}
	d.returnLocked(o)
	if len(c.Messages) == 0 {
		d.unusedLocked(o)
	}
	if l := o.parts[0].lanes; l != nil {
		l.of.failures = 0
		l.claimed(o, c, now)
		if l.of.settings.BatchWait > 0 && l.of.exhausted(now) {
			d.work.Broadcast() // its batch need not wait for more
		}
		return false
	}
	i := 0 // among the wants of the request
	for _, p := range o.parts {
		all, found := true, 0
		for _, want := range p.wants {
			w := o.request.Wants[i]
			more := c.Cut || c.Found[i] >= w.Limit
			all = d.cursors[want].claimed(w.After, o.drops[i], c.Found[i], c.Last[i], more) && all
			if c.Dropped != nil {
				d.cursors[want].dropped(c.Dropped[i])
			}
			found += c.Found[i]
			i++
		}
		if p.failures = 0; c.Wait > 0 {
			p.notBefore = now.Add(c.Wait)
			p.spent.hold(now, p.notBefore)
		}
		if p.consumer.wakeups != p.wakeups || !all {
			continue
		}
		unsure = unsure || p.announced && found == 0
		p.active, p.announced = false, false
	}
	return unsure
}

// failed accounts for a failed claim. If one consumer may be the cause, each is tried in a claim of
// its own, and again later if that fails. apart reports that the others need not wait. slow means
// that the claim took too long, outage that the database did not answer at all.
func (d *dispatcher) failed(o order, slow, outage bool, now time.Time) (apart bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.room.Signal()
	if o.request.Select != store.Clean {
		d.suspectTurn++
		d.quarantine.claimed(o.request, 0, now)
		if o.acquits || o.request.Solo { // the claim may have been committed
			d.quarantine.acquitting, d.quarantine.blamed = false, true
		}
	} else {
		d.returnLocked(o)
		d.unusedLocked(o)
	}
	if outage {
		return false
	}
	if d.oneByOneUntil = now.Add(oneByOneFor); o.request.Select != store.Clean {
		return false
	}
	if len(o.parts) > 1 {
		return true
	}
	c := o.parts[0].consumer
	if l := o.parts[0].lanes; l != nil && slow {
		l.failed(now)
	}
	c.notBefore = now.Add(min(minPostponed<<min(c.failures, 10), maxPostponed))
	c.failures++
	for _, want := range c.wants {
		if slow {
			d.cursors[want].skip(d.clockLocked(now).Add(-margin))
		}
	}
	return len(d.consumers) > 1
}

// returnLocked releases the room that a claim had reserved.
func (d *dispatcher) returnLocked(o order) {
	d.asked -= o.request.MaxBytes
	for _, p := range o.parts {
		p.reserved -= p.asked
		d.reserved -= p.asked
	}
}

// looks returns all wants and the positions of their cursors, where their looks begin. A sweep
// passes the position to begin behind.
func (d *dispatcher) looks(from *store.Position) (wants []store.Want, stood []store.Position) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wants = slices.Clone(d.wants)
	for i := range wants {
		stood = append(stood, d.cursors[i].start)
		wants[i].After = *cmp.Or(from, &stood[i])
	}
	return wants, stood
}

// expected returns the wants of consumers for which messages are expected, or of all.
func (d *dispatcher) expected(now time.Time, all bool) (wants []store.Want) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, want := range d.wants {
		if all || now.Before(d.owner[i].expected) {
			want.After = d.cursors[i].start
			wants = append(wants, want)
		}
	}
	return wants
}

// appeared acts on a look for expected messages. It reports whether idle consumers got work.
func (d *dispatcher) appeared(wants []store.Want, p store.Probe) (news bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range p.Due {
		c := d.byName[wants[i].Consumer]
		news = news || !c.active
		c.activate()
	}
	d.room.Broadcast()
	return news
}

// found acts on a look for all wants, which began while the cursors stood at stood.
func (d *dispatcher) found(p store.Probe, wants []store.Want, stood []store.Position, began time.Time) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tellLocked(p.Now, began, now)
	first := make([]store.Position, len(d.wants))
	due := make([]bool, len(d.wants))
	for i, want := range p.Due {
		first[want], due[want] = p.First[i], true
		d.owner[want].activate()
	}
	for i := range d.cursors {
		d.cursors[i].looked(wants[i].After, stood[i], first[i], due[i], p.Now)
	}
	kept := d.quarantine.pending() || d.quarantine.needsWorker
	d.suspectLocked(p)
	d.quarantine.outlast(now, d.config.Concurrency)
	if d.quarantine.found(p, began, now); kept {
		d.work.Broadcast() // what was kept for crashed messages may be free
	}
	d.room.Broadcast()
}

// foundBehind acts on a look at a part of what is due. It implies nothing about the rest.
func (d *dispatcher) foundBehind(p store.Probe) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, want := range p.Due {
		c := &d.cursors[want]
		c.start = nearer(c.start, ahead(p.First[i]))
		d.owner[want].activate()
	}
	d.room.Broadcast()
}

// nextVerdict returns when to look again while messages wait to run solo: when that may begin, and
// often enough to notice lost processes.
func (d *dispatcher) nextVerdict(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	soon := now.Add(d.quarantine.lease / 4)
	if calm := d.quarantine.calm; calm.After(now) && calm.Before(soon) {
		return calm
	}
	return soon
}

// tell sets the estimate of the database's clock from a statement that was sent at sent.
func (d *dispatcher) tell(clock, sent time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tellLocked(clock, sent, time.Now())
}

// tellLocked uses the time before the statement: the estimate is then early rather than late, and
// no run starts after its deadline. A slow statement does not replace an earlier estimate.
func (d *dispatcher) tellLocked(clock, sent, now time.Time) {
	if known := d.ahead != 0; !clock.IsZero() && (!known || now.Sub(sent) < time.Second) {
		d.ahead = clock.Sub(sent)
	}
}

// clock returns the estimated time of the database at an instant of our clock.
func (d *dispatcher) clock(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clockLocked(now)
}

func (d *dispatcher) clockLocked(now time.Time) time.Time { return now.Add(d.ahead) }

// skip moves all cursors to where messages are new, because looks from their positions take too
// long.
func (d *dispatcher) skip(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.cursors {
		d.cursors[i].skip(d.clockLocked(now).Add(-margin))
	}
}
