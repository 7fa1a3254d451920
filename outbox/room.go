package outbox

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// orderLocked decides what to claim next: for every active consumer its share
// of the room, or, when nothing clean waits, messages that have crashed.
func (d *dispatcher) orderLocked(now time.Time) (order, bool) {
	if d.paused || d.suspects.soloBusy() {
		return order{}, false
	}
	if o, ok := d.suspects.order(d, now); ok || d.suspects.soloWanted {
		return o, ok
	}
	if d.active == 0 {
		return order{}, false
	}
	// Each loop may hold one batch that has not started. Small claims are not
	// worth their round trips while there is still something to run.
	batch := d.config.ProcessorBatchSize
	budget := min(batch, batch*d.config.ConsumerProcessorCount-d.queued-d.reserved)
	if budget <= 0 || d.queued > 0 && budget < max(batch/4, 1) {
		return order{}, false
	}
	consumers, rooms := d.roomsLocked(now)
	total := 0
	for _, room := range rooms {
		total += room
	}
	idle := d.running < d.config.Concurrency
	if total == 0 || !idle && d.queued > 0 && total < max(batch/4, 1) {
		return order{}, false
	}
	return d.writeOrderLocked(consumers, deal(rooms, budget)), true
}

// roomsLocked returns the active consumers, starting with the next in turn, and
// how many messages each has room for: as many as there are free workers, plus
// what it finished in the last second, since that is what it will need next.
func (d *dispatcher) roomsLocked(now time.Time) ([]*consumer, []int) {
	d.turn++
	var consumers []*consumer
	var rooms []int
	free := max(d.config.Concurrency-d.running, 0)
	for i := range d.consumers {
		c := d.consumers[(d.turn+i)%len(d.consumers)]
		if !c.active {
			continue
		}
		room := min(free, d.limit(c)-c.running)*c.group + c.finished.lastSecond(now) - len(c.queue) - c.reserved
		if room > 0 {
			consumers, rooms = append(consumers, c), append(rooms, room)
		}
	}
	return consumers, rooms
}

// deal hands out the budget one by one, round and round, to those with room.
func deal(rooms []int, budget int) []int {
	shares := make([]int, len(rooms))
	for budget > 0 {
		// Everybody with room left gets an equal part of what is left, at least one.
		open := 0
		for i := range rooms {
			if rooms[i] > shares[i] {
				open++
			}
		}
		if open == 0 {
			break
		}
		part := max(budget/open, 1)
		for i := range rooms {
			give := min(part, rooms[i]-shares[i], budget)
			shares[i] += give
			budget -= give
		}
	}
	return shares
}

func (d *dispatcher) writeOrderLocked(consumers []*consumer, shares []int) order {
	o := order{request: store.ClaimRequest{Select: store.Clean, MaxBytes: maxClaimBytes}}
	for i, c := range consumers {
		if shares[i] == 0 {
			continue
		}
		c.reserved += shares[i]
		d.reserved += shares[i]
		o.consumers = append(o.consumers, c)
		o.asked = append(o.asked, shares[i])
		o.wakes = append(o.wakes, c.wakes)
		for _, want := range c.wants {
			w := d.wants[want]
			w.Limit, w.After = shares[i], d.hints.last[want]
			o.wants = append(o.wants, want)
			o.request.Wants = append(o.request.Wants, w)
		}
		o.request.Limit += shares[i] // former names share it
	}
	return o
}

const (
	soloPatience    = 2 * time.Second  // how long a solo run waits for the process to empty
	soloMaxPatience = 10 * time.Minute // doubled with every try in vain, up to this
	soloCooldown    = 10 * time.Second // before it is tried again
)

// suspicion keeps messages that have crashed apart from the others: those that
// crashed once run a few at a time, those that crashed more often run solo, with
// nothing else in flight, so that a killer takes nobody with it.
type suspicion struct {
	waiting    bool // the last probe found messages that crashed once
	killers    bool // ... or more often
	inFlight   int
	reserved   int
	soloWanted bool // nothing is claimed until the process is empty
	soloUntil  time.Time
	patience   time.Duration
	soloAsked  bool // the solo claim is under way
	soloRuns   bool
	notBefore  time.Time
}

func (s *suspicion) found(p store.Probe, now time.Time) {
	s.waiting, s.killers = p.Suspects, p.Killers
	if s.killers && !s.soloWanted && !s.soloBusy() && !now.Before(s.notBefore) {
		s.patience = max(s.patience, soloPatience)
		s.soloWanted, s.soloUntil = true, now.Add(s.patience)
	}
}

// pending tells whether there is an order to give once there is room.
func (s *suspicion) pending() bool { return s.waiting || s.soloWanted }

func (s *suspicion) soloBusy() bool { return s.soloAsked || s.soloRuns }

// order asks for crashed messages, if it is their turn.
func (s *suspicion) order(d *dispatcher, now time.Time) (order, bool) {
	request := store.ClaimRequest{Wants: d.wants, MaxBytes: maxClaimBytes}
	switch {
	case s.soloWanted && d.running+d.queued+d.reserved+s.reserved == 0:
		s.soloWanted, s.soloAsked, s.patience = false, true, 0
		request.Select, request.Limit, request.Solo = store.Killers, 1, true
		return order{request: request}, true
	case s.soloWanted && now.After(s.soloUntil): // a long run is in the way: let the others go on
		s.soloWanted, s.notBefore = false, now.Add(soloCooldown)
		s.patience = min(2*s.patience, soloMaxPatience)
	case s.waiting && !s.soloWanted && s.inFlight+s.reserved < maxSuspects:
		s.waiting = false
		request.Select, request.Limit = store.Suspects, maxSuspects-s.inFlight-s.reserved
		s.reserved += request.Limit
		return order{request: request}, true
	}
	return order{}, false
}

func (s *suspicion) claimed(r store.ClaimRequest, n int) {
	s.inFlight += n
	if r.Solo {
		// Not n: the message may have finished before we get here.
		s.soloAsked, s.soloRuns = false, s.inFlight > 0
		return
	}
	s.reserved -= r.Limit
	s.waiting = s.waiting || n == r.Limit // a full claim: there may be more
}

// finished accounts for a message that ran or was given back.
func (s *suspicion) finished(crashes int) {
	if crashes == 0 {
		return
	}
	s.inFlight--
	if s.soloRuns {
		s.soloRuns = false
	}
}
