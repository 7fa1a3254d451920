package bustest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// FakeProducer has the methods of *outbox.Producer and only records messages, for tests without a
// database: handles passed to it may be nil. It refuses a pool that is not Bun's. If the context has
// ended, it records nothing and returns the context's error, as a database would. The zero value
// works. Check what was produced with [RequireProduced].
//
// A payload whose insert id was produced before is a duplicate or replaces the earlier one:
// FakeProducer consumes nothing, so an insert id stays pending. It is safe for concurrent use; set
// the fields first.
type FakeProducer struct {
	// Registry makes the fake reject what the real producer rejects, such as a payload without a
	// consumer, and count consumers in receipts. Defaults to none: every payload has one consumer
	// and is encoded as JSON.
	Registry *bus.Registry
	// IDs makes message ids. Defaults to SequentialIDs().
	IDs func() uuid.UUID
	// Err is returned by every method, which then does nothing, to test error handling. Defaults
	// to nil.
	Err error

	mu   sync.Mutex
	sent []*bus.Message
}

// Produce records one payload; see outbox.Producer.Produce.
func (p *FakeProducer) Produce(ctx context.Context, db bus.Handle, payload bus.Payload, options ...outbox.Option) (outbox.Receipt, error) {
	receipts, err := p.ProduceMany(ctx, db, outbox.Item{Payload: payload, Options: options})
	if err != nil {
		return outbox.Receipt{}, err
	}
	return receipts[0], nil
}

// ProduceMany records all payloads or none; see outbox.Producer.ProduceMany.
func (p *FakeProducer) ProduceMany(ctx context.Context, db bus.Handle, items ...outbox.Item) ([]outbox.Receipt, error) {
	if err := inTx(ctx, db); err != nil {
		return nil, fmt.Errorf("outbox: produce: %w", err)
	}
	batch := make([]*bus.Message, len(items))
	var mistakes error
	for i, item := range items {
		m, err := p.message(item)
		if err == nil {
			err = access.CheckMessage(m, limits.Payload)
		}
		if err != nil && len(items) > 1 {
			err = fmt.Errorf("item %d: %w", i, err)
		}
		batch[i], mistakes = m, errors.Join(mistakes, err)
	}
	if mistakes != nil {
		return nil, fmt.Errorf("outbox: produce: %w", mistakes)
	}
	receipts, err := p.note(ctx, batch)
	if err != nil {
		return nil, fmt.Errorf("outbox: produce: %w", err)
	}
	return receipts, nil
}

// WhenDone records the payload as if the group were done; see outbox.Producer.WhenDone. It checks the
// payload of outbox.IfPoisoned and does not record it.
func (p *FakeProducer) WhenDone(
	ctx context.Context, db bus.Handle, group outbox.Option, payload bus.Payload, options ...outbox.WhenDoneOption,
) error {
	_, done, poisoned, err := itemsOf(group, payload, options)
	if err == nil {
		err = inTx(ctx, db)
	}
	var batch []*bus.Message
	for _, item := range []*outbox.Item{&done, poisoned} {
		if err != nil || item == nil {
			continue
		}
		var m *bus.Message
		if m, err = p.message(*item); err == nil && m.Group != "" {
			err = fmt.Errorf("payload %q: %w: a payload of WhenDone cannot have Group", m.PayloadType, bus.ErrInvalidOption)
		}
		batch = append(batch, m)
	}
	if err == nil {
		err = p.check(batch)
	}
	if err == nil {
		_, err = p.note(ctx, batch[:1])
	}
	if err != nil {
		return fmt.Errorf("outbox: when done: %w", err)
	}
	return nil
}

// Send records messages that are already encoded; see outbox.Producer.Send.
func (p *FakeProducer) Send(ctx context.Context, db bun.IDB, batch ...*bus.Message) error {
	if err := inTx(ctx, db); err != nil {
		return fmt.Errorf("outbox: send: %w", err)
	}
	if _, err := p.note(ctx, batch); err != nil {
		return fmt.Errorf("outbox: send: %w", err)
	}
	return nil
}

// RunInTx runs fn in a transaction of db or, if db is nil, with a zero bun.Tx that fn must not
// use. What fn produces with its context is recorded once fn and the commit succeed; see
// outbox.Producer.RunInTx.
func (p *FakeProducer) RunInTx(ctx context.Context, db *bun.DB, fn func(ctx context.Context, tx bun.Tx) error) error {
	if fn == nil {
		return errors.New("outbox: run in tx: the function is nil")
	}
	return p.within(ctx, "run in tx", func(ctx context.Context) error {
		if db != nil {
			return db.RunInTx(ctx, nil, fn)
		}
		if err := ctx.Err(); err != nil { // as the begin, or the commit, would return it
			return err
		}
		return cmp.Or(fn(ctx, bun.Tx{}), ctx.Err())
	})
}

// Within runs fn. What fn produces with its context is recorded once fn succeeds; see
// outbox.Producer.Within.
func (p *FakeProducer) Within(ctx context.Context, fn func(ctx context.Context) error) error {
	if fn == nil {
		return errors.New("outbox: within: the function is nil")
	}
	return p.within(ctx, "within", fn)
}

func (p *FakeProducer) within(ctx context.Context, operation string, fn func(ctx context.Context) error) error {
	if p.Err != nil {
		return p.Err
	}
	if ctx.Value(uncommittedKey{}) != nil {
		return fmt.Errorf("outbox: %s: %w", operation, outbox.ErrNotInTx)
	}
	uncommitted := new([]*bus.Message)
	if err := fn(context.WithValue(ctx, uncommittedKey{}, uncommitted)); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range *uncommitted {
		p.sent, _ = p.keep(p.sent, m)
	}
	return nil
}

// itemsFunc returns the name of a group and what WhenDone is to produce.
type itemsFunc = func(
	group outbox.Option, payload bus.Payload, options []outbox.WhenDoneOption,
) (name string, done outbox.Item, poisoned *outbox.Item, err error)

// itemsOf is immutable.
var itemsOf = hooks.Function[itemsFunc]("outbox.WhenDone")

type uncommittedKey struct{}

// inTx returns outbox.ErrNotInTx for a handle that does not belong to the context's transaction, and
// an error for a pool that is not Bun's.
func inTx(ctx context.Context, db bus.Handle) error {
	switch db.(type) {
	case *bun.DB, bun.Conn, *bun.Conn:
		if ctx.Value(uncommittedKey{}) != nil {
			return outbox.ErrNotInTx
		}
	}
	return txn.CheckEnds(db)
}

func (p *FakeProducer) message(item outbox.Item) (*bus.Message, error) {
	payloadType, text, err := encode(p.Registry, item.Payload)
	if err != nil {
		return nil, err
	}
	m := &bus.Message{PayloadType: payloadType, Payload: text, Value: item.Payload}
	for i, option := range item.Options {
		if option == nil {
			err = errors.Join(err, fmt.Errorf("payload %q: %w: option %d is nil", payloadType, bus.ErrInvalidOption, i))
		} else if mistake := option(m); mistake != nil {
			err = errors.Join(err, fmt.Errorf("payload %q: %w", payloadType, mistake))
		}
	}
	return m, err
}

// encode encodes a payload as a registry does, as far as possible without one.
func encode(registry *bus.Registry, payload bus.Payload) (payloadType string, text []byte, err error) {
	if registry != nil {
		return access.Encode(registry, payload)
	}
	if payload == nil || reflect.TypeOf(payload).Kind() == reflect.Pointer {
		return "", nil, fmt.Errorf("%w: %T, pass the struct itself", bus.ErrInvalidPayload, payload)
	}
	payloadType = payload.PayloadType()
	if text, err = (bus.JSON{}).Encode(payload); err != nil {
		return "", nil, fmt.Errorf("encode payload %q: %w", payloadType, err)
	}
	return payloadType, text, nil
}

// note checks a batch and records its new messages.
func (p *FakeProducer) note(ctx context.Context, batch []*bus.Message) ([]outbox.Receipt, error) {
	if p.Err != nil {
		return nil, p.Err
	}
	if err := p.check(batch); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("insert messages: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.IDs == nil {
		p.IDs = SequentialIDs()
	}
	uncommitted, inTx := ctx.Value(uncommittedKey{}).(*[]*bus.Message)
	view := p.sent
	if inTx {
		for _, m := range *uncommitted {
			view, _ = p.keep(view, m)
		}
	}
	receipts := make([]outbox.Receipt, len(batch))
	for i, m := range batch {
		if m.ID == (uuid.UUID{}) {
			m.ID = p.IDs()
		}
		kept := *m
		kept.Headers = maps.Clone(m.Headers)
		consumers, duplicates := len(p.consumers(m)), 0
		if m.InsertID != "" && slices.ContainsFunc(batch[i+1:], func(later *bus.Message) bool { return later.Replace && p.sharesID(m, later) }) {
			duplicates = consumers // as the later one of the call replaces it
		} else if view, duplicates = p.keep(view, &kept); duplicates < consumers && inTx {
			*uncommitted = append(*uncommitted, &kept)
		}
		receipts[i] = outbox.Receipt{MessageID: m.ID, Enqueued: consumers - duplicates, Duplicates: duplicates}
	}
	if !inTx {
		p.sent = view
	}
	return receipts, nil
}

// check returns the error that the producer has for a batch.
func (p *FakeProducer) check(batch []*bus.Message) error {
	seen := make(map[uuid.UUID]bool, len(batch))
	for _, m := range batch {
		if err := access.CheckMessage(m, limits.Payload); err != nil {
			return err
		}
		if err := flow.CheckDeadline(m, time.Now()); err != nil {
			return err
		}
		if err := store.CheckHeaders(m.Headers); err != nil {
			return err
		}
		if seen[m.ID] {
			return fmt.Errorf("payload %q: %w: a layer of the produce chain sends message %s twice", m.PayloadType, bus.ErrInvalidOption, m.ID)
		}
		seen[m.ID] = m.ID != uuid.UUID{}
		if p.Registry == nil {
			continue
		}
		if len(p.consumers(m)) == 0 && m.Event == nil {
			return fmt.Errorf("payload %q: %w", m.PayloadType, bus.ErrNoConsumer)
		}
		if err := access.SetKey(p.Registry, m); err != nil {
			return err
		}
	}
	return nil
}

// keep returns what is pending once m is produced, and the number of m's consumers for which it is a
// duplicate. It does not change the messages of pending, and may append behind them.
func (p *FakeProducer) keep(pending []*bus.Message, m *bus.Message) (after []*bus.Message, duplicates int) {
	if m.InsertID == "" {
		return append(pending, m), 0
	}
	if m.Replace {
		pending = slices.DeleteFunc(slices.Clone(pending), func(other *bus.Message) bool { return p.sharesID(m, other) })
	}
	consumers := p.consumers(m)
	for _, consumer := range consumers {
		if slices.ContainsFunc(pending, func(other *bus.Message) bool {
			return other.InsertID == m.InsertID && slices.Contains(p.consumers(other), consumer)
		}) {
			duplicates++
		}
	}
	if duplicates == len(consumers) {
		return pending, duplicates
	}
	return append(pending, m), duplicates
}

// sharesID reports whether two messages have the same insert id for a consumer.
func (p *FakeProducer) sharesID(m, other *bus.Message) bool {
	return m.InsertID != "" && other.InsertID == m.InsertID &&
		slices.ContainsFunc(p.consumers(m), func(name string) bool { return slices.Contains(p.consumers(other), name) })
}

// consumers are the names of a message's consumers. Without a Registry each payload type has one.
func (p *FakeProducer) consumers(m *bus.Message) []string {
	if p.Registry == nil {
		return []string{m.PayloadType}
	}
	return store.Each(flow.Recipients(m, access.ConsumersOf(p.Registry, m.PayloadType)), bus.Consumer.Name)
}

func (p *FakeProducer) produced() ([]*bus.Message, bus.Codec, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var codec bus.Codec = bus.JSON{}
	if p.Registry != nil {
		codec = p.Registry.Codec()
	}
	return slices.Clone(p.sent), codec, nil
}
