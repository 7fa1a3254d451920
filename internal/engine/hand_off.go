package engine

import (
	"context"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/handoff"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// handOffRest is how long nothing is handed off after an error.
const handOffRest = 10 * time.Second

// handOffs takes messages that producers of this process have claimed for it in their own
// transactions. It implements [handoff.Receiver].
type handOffs struct {
	store      *store.Store
	db         *bun.DB
	owner      string
	config     *ProcessorConfig
	ctx        context.Context // of statements that must outlive a stop
	dispatcher *dispatcher
	enqueuer   *enqueuer
	claimer    *claimer // counts claims
	outage     *outage.Outage
	inFlight   *inFlightClaims

	ids idReserve

	mu     sync.RWMutex
	open   int           // reservations
	idle   chan struct{} // closed once closed is set and none is open
	closed bool
	ended  bool      // the run takes nothing any more
	resume time.Time // nothing is handed off before
}

// IDs implements [handoff.Receiver].
func (ho *handOffs) IDs(n int) (handoff.IDs, time.Time) {
	ids := ho.ids.take(n)
	if ids.IDs == nil {
		return ids, time.Time{}
	}
	return ids, ho.dispatcher.pollState.clock(time.Now())
}

// Refused implements [handoff.Receiver].
func (ho *handOffs) Refused(ids handoff.IDs) { ho.ids.refused(ids.Origin, time.Now()) }

// loop keeps ids of messages in reserve until ctx ends.
func (ho *handOffs) loop(ctx context.Context) {
	retry := outage.NewRetry()
	for ho.store.HandsOff() {
		ids, err := ask(ctx, ho.outage, "reserve message ids", statementTimeout,
			func(ctx context.Context) (handoff.IDs, error) {
				return ho.store.Outbox.MessageIDs(ctx, ho.db, reservedIDs)
			})
		if err != nil {
			if !outage.Pause(ctx, retry.NextBackOff()) {
				return
			}
			continue
		}
		retry.Reset()
		ho.ids.add(ids)
		if len(ids.IDs) == 0 && !outage.Pause(ctx, handOffRest) { // the role may get the right later
			return
		}
		select {
		case <-ho.ids.low:
		case <-ctx.Done():
			return
		}
	}
}

// Reserve implements [handoff.Receiver].
func (ho *handOffs) Reserve(messages []handoff.Message) (handoff.Reservation, []handoff.Message) {
	if !ho.enter(time.Now()) {
		return nil, messages
	}
	admitted, consumers, rest := ho.dispatcher.admit(messages)
	if len(admitted) == 0 {
		ho.leave()
		return nil, messages
	}
	return &reservation{handOffs: ho, messages: admitted, consumers: consumers, landed: ho.inFlight.begin()}, rest
}

func (ho *handOffs) enter(now time.Time) bool {
	ho.mu.Lock()
	defer ho.mu.Unlock()
	if ho.closed || now.Before(ho.resume) {
		return false
	}
	ho.open++
	return true
}

func (ho *handOffs) leave() {
	ho.mu.Lock()
	defer ho.mu.Unlock()
	ho.open--
	if ho.closed && ho.open == 0 {
		close(ho.idle)
	}
}

// failed has nothing handed off for a while.
func (ho *handOffs) failed(err error, now time.Time) {
	ho.mu.Lock()
	defer ho.mu.Unlock()
	ho.resume = now.Add(handOffRest)
	ho.config.Logger.Debug("hand-off paused", "error", err)
}

// receive has producers hand messages off until stop is called. The channel that stop returns is
// closed once those on their way have arrived.
func (ho *handOffs) receive(registry *bus.Registry) (stop func() <-chan struct{}) {
	ho.idle = make(chan struct{})
	remove := func() {}
	if ho.store.HandsOff() {
		remove = access.HandOffs(registry).Add(ho.db, ho)
	}
	return func() <-chan struct{} {
		remove()
		ho.mu.Lock()
		defer ho.mu.Unlock()
		ho.closed = true
		if ho.open == 0 {
			close(ho.idle)
		}
		return ho.idle
	}
}

// end has producers give back what they commit from now on.
func (ho *handOffs) end() {
	ho.mu.Lock()
	defer ho.mu.Unlock()
	ho.ended = true
}

// reservation is room for messages of one transaction. It implements [handoff.Reservation].
type reservation struct {
	handOffs  *handOffs
	messages  []handoff.Message
	consumers []*consumer // of the messages
	landed    func()      // ends the claim's flight
	claim     int64
	sent      time.Time // when the claim was
}

func (r *reservation) handOff() store.HandOff {
	return store.HandOff{
		Owner: r.handOffs.owner, Lease: r.handOffs.config.LeaseDuration,
		Messages: store.Each(r.messages, func(m handoff.Message) int64 { return m.ID }),
	}
}

// Claim implements [handoff.Reservation].
func (r *reservation) Claim(ctx context.Context, tx bun.Tx, planned bool) (bool, error) {
	ho := r.handOffs
	h := r.handOff()
	h.Planned = planned
	r.claim, r.sent = h.Claim(), time.Now()
	claimed, err := ho.store.Claims.HandOff(ctx, tx, h)
	if err != nil {
		ho.failed(err, time.Now())
	}
	return claimed, err
}

// Insert implements [handoff.Reservation].
func (r *reservation) Insert(ctx context.Context, origin string) (claimed bool, err error) {
	ho := r.handOffs
	rows := store.Each(r.messages, func(m handoff.Message) store.NewMessage {
		return store.NewMessage{
			MessageID: m.MessageID, ConsumerType: m.ConsumerType, PayloadType: m.PayloadType, Payload: m.Payload, Headers: m.Headers,
		}
	})
	h := r.handOff()
	r.claim, r.sent = h.Claim(), time.Now()
	claimed, err = ho.store.Outbox.InsertHandOff(ctx, ho.db, rows, handoff.IDs{IDs: h.Messages, Origin: origin}, h)
	if err != nil && ctx.Err() == nil {
		ho.failed(err, time.Now())
		ho.ids.refused(origin, time.Now())
	}
	return claimed, err
}

// Commit implements [handoff.Reservation].
func (r *reservation) Commit() {
	defer r.end()
	ho := r.handOffs
	ctx, cancel := context.WithTimeout(ho.ctx, statementTimeout)
	defer cancel()
	if r.handOver(ctx) {
		return
	}
	if err := ho.store.Claims.Disclaim(ctx, ho.db, ho.owner, []int64{r.claim}); err != nil {
		ho.inFlight.doubt(r.sent.Add(ho.config.LeaseDuration))
		ho.outage.Failed("disclaim", err)
	}
}

// handOver queues the messages. It returns false if the run has ended, or the lease does soon.
func (r *reservation) handOver(ctx context.Context) bool {
	ho := r.handOffs
	ho.mu.RLock() // the run ends before or after this
	defer ho.mu.RUnlock()
	if ho.ended || time.Since(r.sent) > ho.config.LeaseDuration/4 {
		return false
	}
	c := store.Claim{ID: r.claim, Sent: r.sent, Messages: store.Each(r.messages, rowOf)}
	ho.claimer.count(len(c.Messages))
	if _, err := ho.enqueuer.enqueue(ctx, c); err != nil { // its messages are given back
		ho.outage.Failed("hand off", err)
	}
	return true
}

// rowOf returns a message as a claim reads it.
func rowOf(m handoff.Message) store.Message {
	at := store.Moment{Time: m.CreatedAt}
	row := store.Message{
		ID: m.ID, MessageID: m.MessageID, ConsumerType: m.ConsumerType, PayloadType: m.PayloadType, Payload: []byte(m.Payload),
		CreatedAt: at, AvailableAfter: at,
	}
	if m.Headers != "" {
		row.Headers = []byte(m.Headers)
	}
	return row
}

// Cancel implements [handoff.Reservation].
func (r *reservation) Cancel(unsure bool) {
	if unsure { // the server may still be at the commit
		r.handOffs.inFlight.doubt(r.sent.Add(r.handOffs.config.LeaseDuration))
	}
	r.end()
}

// end gives the room back.
func (r *reservation) end() {
	r.handOffs.dispatcher.arrived(r.messages, r.consumers)
	r.landed()
	r.handOffs.leave()
}
