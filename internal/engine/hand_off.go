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

// receiver takes messages that producers of this process have claimed for it in their own
// transactions. It implements [handoff.Receiver].
type receiver struct {
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
	idle   chan struct{} // closed once the receiver is closed and none is open
	closed bool
	ended  bool      // the run takes nothing any more
	resume time.Time // nothing is handed off before
}

// IDs implements [handoff.Receiver].
func (rc *receiver) IDs(n int) (handoff.IDs, time.Time) {
	ids := rc.ids.take(n)
	if ids.IDs == nil {
		return ids, time.Time{}
	}
	return ids, rc.dispatcher.pollState.clock(time.Now())
}

// loop keeps ids of messages in reserve until ctx ends.
func (rc *receiver) loop(ctx context.Context) {
	retry := outage.NewRetry()
	for rc.store.HandsOff() {
		ids, err := ask(ctx, rc.outage, "reserve message ids", statementTimeout,
			func(ctx context.Context) (handoff.IDs, error) {
				return rc.store.Outbox.MessageIDs(ctx, rc.db, reservedIDs)
			})
		if err != nil {
			if !outage.Pause(ctx, retry.NextBackOff()) {
				return
			}
			continue
		}
		retry.Reset()
		rc.ids.add(ids)
		if len(ids.IDs) == 0 && !outage.Pause(ctx, handOffRest) { // the role may get the right later
			return
		}
		select {
		case <-rc.ids.low:
		case <-ctx.Done():
			return
		}
	}
}

// Reserve implements [handoff.Receiver].
func (rc *receiver) Reserve(messages []handoff.Message) (handoff.Reservation, []handoff.Message) {
	if !rc.enter(time.Now()) {
		return nil, messages
	}
	admitted, consumers, rest := rc.dispatcher.admit(messages)
	if len(admitted) == 0 {
		rc.leave()
		return nil, messages
	}
	return &reservation{receiver: rc, messages: admitted, consumers: consumers, landed: rc.inFlight.begin()}, rest
}

func (rc *receiver) enter(now time.Time) bool {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	if rc.closed || now.Before(rc.resume) {
		return false
	}
	rc.open++
	return true
}

func (rc *receiver) leave() {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.open--
	if rc.closed && rc.open == 0 {
		close(rc.idle)
	}
}

// failed has nothing handed off for a while.
func (rc *receiver) failed(err error, now time.Time) {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.resume = now.Add(handOffRest)
	rc.config.Logger.Debug("messages are not handed off for a while", "error", err)
}

// receive has producers hand messages off until stop is called. The channel that stop returns is
// closed once those on their way have arrived.
func (rc *receiver) receive(registry *bus.Registry) (stop func() <-chan struct{}) {
	rc.idle = make(chan struct{})
	remove := func() {}
	if rc.store.HandsOff() {
		remove = access.HandOffs(registry).Add(rc.db, rc)
	}
	return func() <-chan struct{} {
		remove()
		rc.mu.Lock()
		defer rc.mu.Unlock()
		rc.closed = true
		if rc.open == 0 {
			close(rc.idle)
		}
		return rc.idle
	}
}

// end has producers give back what they commit from now on.
func (rc *receiver) end() {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	rc.ended = true
}

// reservation is room for messages of one transaction. It implements [handoff.Reservation].
type reservation struct {
	receiver  *receiver
	messages  []handoff.Message
	consumers []*consumer // of the messages
	landed    func()      // ends the claim's flight
	claim     int64
	sent      time.Time // when the claim was
}

func (r *reservation) handOff() store.HandOff {
	return store.HandOff{
		Owner: r.receiver.owner, Lease: r.receiver.config.LeaseDuration,
		Messages: store.Each(r.messages, func(m handoff.Message) int64 { return m.ID }),
	}
}

// Claim implements [handoff.Reservation].
func (r *reservation) Claim(ctx context.Context, tx bun.Tx, planned bool) (bool, error) {
	rc := r.receiver
	h := r.handOff()
	h.Planned = planned
	r.claim, r.sent = h.Claim(), time.Now()
	claimed, err := rc.store.Claims.HandOff(ctx, tx, h)
	if err != nil {
		rc.failed(err, time.Now())
	}
	return claimed, err
}

// Insert implements [handoff.Reservation].
func (r *reservation) Insert(ctx context.Context, origin string) (claimed bool, err error) {
	rc := r.receiver
	rows := store.Each(r.messages, func(m handoff.Message) store.NewMessage {
		return store.NewMessage{
			MessageID: m.MessageID, ConsumerType: m.ConsumerType, PayloadType: m.PayloadType, Payload: m.Payload, Headers: m.Headers,
		}
	})
	h := r.handOff()
	r.claim, r.sent = h.Claim(), time.Now()
	claimed, err = rc.store.Outbox.InsertHandOff(ctx, rc.db, rows, handoff.IDs{IDs: h.Messages, Origin: origin}, h)
	if err != nil && ctx.Err() == nil {
		rc.failed(err, time.Now())
	}
	return claimed, err
}

// Commit implements [handoff.Reservation].
func (r *reservation) Commit() {
	defer r.end()
	rc := r.receiver
	ctx, cancel := context.WithTimeout(rc.ctx, statementTimeout)
	defer cancel()
	if r.handOver(ctx) {
		return
	}
	if err := rc.store.Claims.Disclaim(ctx, rc.db, rc.owner, []int64{r.claim}); err != nil {
		rc.inFlight.doubt(r.sent.Add(rc.config.LeaseDuration))
		rc.outage.Failed("disclaim", err)
	}
}

// handOver queues the messages. It returns false if the run has ended, or the lease does soon.
func (r *reservation) handOver(ctx context.Context) bool {
	rc := r.receiver
	rc.mu.RLock() // the run ends before or after this
	defer rc.mu.RUnlock()
	if rc.ended || time.Since(r.sent) > rc.config.LeaseDuration/4 {
		return false
	}
	c := store.Claim{ID: r.claim, Sent: r.sent, Messages: store.Each(r.messages, rowOf)}
	rc.claimer.count(len(c.Messages))
	if _, err := rc.enqueuer.enqueue(ctx, c); err != nil { // its messages are given back
		rc.outage.Failed("hand off", err)
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
		r.receiver.inFlight.doubt(r.sent.Add(r.receiver.config.LeaseDuration))
	}
	r.end()
}

// end gives the room back.
func (r *reservation) end() {
	r.receiver.dispatcher.arrived(r.messages, r.consumers)
	r.landed()
	r.receiver.leave()
}
