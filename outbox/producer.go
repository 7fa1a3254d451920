package outbox

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/flow"
	"github.com/asyncmonolith/asyncmonolith-go/internal/limits"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/internal/txn"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// ProducerConfig configures a [Producer]. The zero value works.
type ProducerConfig struct {
	// Middleware is the application's layers of the produce chain, first outermost. They wrap the
	// batch, between validation and insert. In a transaction of its own, PostgreSQL rolls a batch with
	// insert ids or groups back if a layer takes longer than 15 s after the insert. Defaults to none.
	Middleware []bus.ProduceMiddleware
	// Telemetry wraps the whole chain after validation. Defaults to none.
	Telemetry bus.ProduceMiddleware
	// MaxPayload is the maximum size of an encoded payload, in bytes: 1 or more. Defaults to 1 MiB.
	MaxPayload int
	// Logger receives a debug line per message. Defaults to slog.Default().
	Logger *slog.Logger
}

// Producer writes messages in the caller's transaction. It holds no database and is safe for
// concurrent use. Make one with [NewProducer]: every method of the zero value and of nil returns an
// error.
type Producer struct {
	registry *bus.Registry
	config   ProducerConfig
	chain    bus.ProduceFunc
	stores   store.Stores
	routes   *routes
}

// errUnmade is returned by the zero Producer, which under fx is what a constructor gets.
var errUnmade = errors.New("the producer was not made by NewProducer; under fx use it from OnStart on")

// NewProducer makes a producer for the registry's consumers. It reports all configuration errors at
// once.
func NewProducer(registry *bus.Registry, config ProducerConfig) (*Producer, error) {
	var errs []error
	if registry == nil {
		errs = append(errs, errors.New("outbox: NewProducer: the registry is nil"))
	}
	if config.MaxPayload < 0 {
		errs = append(errs, fmt.Errorf("outbox: ProducerConfig.MaxPayload %d: 1 or more is allowed", config.MaxPayload))
	}
	for i, layer := range config.Middleware {
		if layer == nil {
			errs = append(errs, fmt.Errorf("outbox: ProducerConfig.Middleware[%d] is nil", i))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	config.MaxPayload, config.Logger = cmp.Or(config.MaxPayload, limits.Payload), cmp.Or(config.Logger, slog.Default())
	p := &Producer{registry: registry, config: config, stores: store.All(registry), routes: &routes{began: time.Now()}}
	p.chain = p.log(access.ComposeProduce(nil, config.Middleware...))
	if config.Telemetry != nil {
		p.chain = config.Telemetry(p.chain)
	}
	return p, nil
}

func (p *Producer) log(next bus.ProduceFunc) bus.ProduceFunc {
	return func(ctx context.Context, b *bus.Batch) error {
		err := next(ctx, b)
		if err == nil && p.config.Logger.Enabled(ctx, slog.LevelDebug) {
			for _, m := range b.Messages {
				p.config.Logger.LogAttrs(ctx, slog.LevelDebug, "message produced",
					slog.String("message_id", m.ID.String()), slog.String("payload_type", m.PayloadType))
			}
		}
		return err
	}
}

// Produce writes the payload for each of its consumers. Given a transaction, it writes there, and
// the messages exist once that commits. Given a *bun.DB or bun.Conn, it writes the rows of all
// consumers or none.
//
// With the context of [Producer.RunInTx], or of a transactional consumer, the handle must be that
// transaction: see [ErrNotInTx].
//
// For invalid input the error is bus.ErrNoConsumer, bus.ErrInvalidPayload, bus.ErrTooLarge,
// bus.ErrInvalidText, bus.ErrInvalidOption or bus.ErrNoKey, and nothing was sent to the database. If the
// tables are missing, it is [ErrSchemaOutdated]. Errors of the produce chain and of the database are
// wrapped. In a REPEATABLE READ or SERIALIZABLE transaction, an insert id may cause a serialization
// failure, which the caller must retry.
func (p *Producer) Produce(ctx context.Context, db bus.Handle, payload bus.Payload, options ...Option) (Receipt, error) {
	receipts, err := p.ProduceMany(ctx, db, Item{Payload: payload, Options: options})
	if err != nil {
		return Receipt{}, err
	}
	return receipts[0], nil
}

// ProduceMany writes any number of payloads, of any types, in as few statements as possible: all or
// none. The receipts are in the order of the items. Zero items is a no-op. It joins the errors of
// all invalid items, which are those of [Producer.Produce]. Each error names its item, counted from
// 0.
func (p *Producer) ProduceMany(ctx context.Context, db bus.Handle, items ...Item) ([]Receipt, error) {
	if p == nil || p.registry == nil {
		return nil, fmt.Errorf("outbox: produce: %w", errUnmade)
	}
	batch := make([]*bus.Message, len(items))
	err := each(len(items), "item", func(i int) (err error) {
		if batch[i], err = p.message(items[i]); err != nil {
			return err
		}
		return p.check(batch[i], time.Time{})
	})
	if err != nil {
		return nil, fmt.Errorf("outbox: produce: %w", err)
	}
	receipts, err := p.deliver(ctx, db, batch, nil)
	if err != nil {
		return nil, fmt.Errorf("outbox: produce: %w", err)
	}
	out := make([]Receipt, len(batch))
	for i, m := range batch {
		out[i] = receipts[m.ID]
		out[i].MessageID = m.ID
	}
	return out, nil
}

func (p *Producer) message(item Item) (*bus.Message, error) {
	payloadType, text, err := access.Encode(p.registry, item.Payload)
	if err != nil {
		return nil, err
	}
	m := &bus.Message{ID: newMessageID(), PayloadType: payloadType, Payload: text, Value: item.Payload}
	for i, option := range item.Options {
		if option == nil {
			err = errors.Join(err, fmt.Errorf("payload %q: %w: option %d is nil", payloadType, bus.ErrInvalidOption, i))
		} else if mistake := option(m); mistake != nil {
			err = errors.Join(err, fmt.Errorf("payload %q: %w", payloadType, mistake))
		}
	}
	return m, err
}

// maxMistakes is the maximum number of errors that are listed.
const maxMistakes = 100

// each joins the errors that check finds in the parts of a batch, and names each part.
func each(n int, part string, check func(i int) error) error {
	var mistakes []error
	more := 0
	for i := range n {
		switch err := check(i); {
		case err == nil:
		case n == 1:
			return err
		case len(mistakes) == maxMistakes:
			more++
		default:
			mistakes = append(mistakes, fmt.Errorf("%s %d: %w", part, i, err))
		}
	}
	if more > 0 {
		mistakes = append(mistakes, fmt.Errorf("and %d more", more))
	}
	return errors.Join(mistakes...)
}

func newMessageID() uuid.UUID { return uuid.Must(uuid.NewV7FromReader(random{})) }

// random makes ids unique. They need not be secret, and reading from the system would be their
// largest cost. Read cannot fail.
type random struct{}

func (random) Read(b []byte) (int, error) {
	for i := 0; i < len(b); i += 8 {
		var bits [8]byte
		binary.NativeEndian.PutUint64(bits[:], rand.Uint64())
		copy(b[i:], bits[:])
	}
	return len(b), nil
}

// check reports whether a message cannot be written, and gives it an id unless it has one. A zero
// now skips checks that depend on the time.
func (p *Producer) check(m *bus.Message, now time.Time) error {
	if m != nil && m.ID == uuid.Nil {
		m.ID = newMessageID()
	}
	if err := access.CheckMessage(m, p.config.MaxPayload); err != nil {
		return err
	}
	if err := flow.CheckDeadline(m, now); err != nil {
		return err
	}
	if err := store.CheckHeaders(m.Headers); err != nil {
		return err
	}
	return access.SetKey(p.registry, m)
}

// Send writes messages whose payload is already encoded: from a due schedule, or forwarded from
// elsewhere. They pass through the produce chain like any other. A message without an id gets one.
// Layers change copies, so a transaction may be repeated with the same messages. All are written or
// none. The errors are those of [Producer.Produce].
func (p *Producer) Send(ctx context.Context, db bun.IDB, batch ...*bus.Message) error {
	return p.SendEvents(ctx, db, store.Recording{Batch: batch})
}

// SendEvents is for eventlog.Log. Its last parameter is internal, so that no other package can call it.
func (p *Producer) SendEvents(ctx context.Context, db bun.IDB, recording store.Recording) error {
	if p == nil || p.registry == nil {
		return fmt.Errorf("outbox: send: %w", errUnmade)
	}
	batch, record := recording.Batch, recording.Record
	err := each(len(batch), "message", func(i int) error { return p.check(batch[i], time.Time{}) })
	if err == nil && record == nil { // a log passes messages of its own
		batch = store.Each(batch, access.Clone)
	}
	if err == nil {
		_, err = p.deliver(ctx, db, batch, record)
	}
	if err != nil {
		return fmt.Errorf("outbox: send: %w", err)
	}
	return nil
}

// write is the end of the produce chain. Messages are checked before the chain, so that messages
// that cannot be written are not traced or logged. They are checked again here, since layers may
// have changed them. A layer may send a batch in parts.
func (p *Producer) write(
	ctx context.Context, s *store.Store, db bun.IDB, batch []*bus.Message, record store.Record, receipts map[uuid.UUID]Receipt,
) error {
	events, err := p.checked(batch, store.Clock(ctx), record != nil, receipts)
	if err != nil {
		return err
	}
	if len(events) > 0 {
		if err := record(db, p.registry, events); err != nil {
			return dberr.Explained(err)
		}
	}
	rows, err := p.rows(batch)
	if err != nil {
		return err
	}
	written, announce, err := p.insert(ctx, s, db, rows)
	if err != nil {
		if len(events) > 0 {
			txn.Spoil(ctx, db)
		}
		return dberr.Explained(err)
	}
	var payloadTypes []string
	for _, m := range batch {
		n := written[m.ID]
		receipts[m.ID] = Receipt{Enqueued: n, Duplicates: len(flow.Recipients(m, access.ConsumersOf(p.registry, m.PayloadType))) - n}
		if n > 0 && announce && !slices.Contains(payloadTypes, m.PayloadType) {
			payloadTypes = append(payloadTypes, m.PayloadType)
		}
	}
	txn.AnnounceMessages(ctx, db, p.registry, payloadTypes)
	if len(events) > 0 {
		txn.Announce(ctx, db, p.registry, wakeup.Wake{Events: true})
	}
	return nil
}

// checked returns an error for a batch that cannot be written, and the events that must be
// recorded. Messages that a layer has added get ids.
func (p *Producer) checked(
	batch []*bus.Message, now time.Time, records bool, written map[uuid.UUID]Receipt,
) (events []*bus.Message, err error) {
	var seen map[uuid.UUID]bool
	if len(batch) > 1 {
		seen = make(map[uuid.UUID]bool, len(batch))
	}
	for _, m := range batch {
		if err := p.check(m, now); err != nil {
			return nil, err
		}
		if _, before := written[m.ID]; before || seen[m.ID] {
			return nil, fmt.Errorf("payload %q: %w: a layer of the produce chain sends message %s twice", m.PayloadType, bus.ErrInvalidOption, m.ID)
		}
		if seen != nil {
			seen[m.ID] = true
		}
		if m.Event == nil || m.Event.Sequence != 0 {
			continue
		}
		if events = append(events, m); !records {
			return nil, fmt.Errorf("%w: an event is appended with eventlog.Log.Append", bus.ErrInvalidOption)
		}
	}
	return events, nil
}

// writeAll opens a transaction, or a savepoint in the caller's, only if one statement is not
// enough.
func writeAll(ctx context.Context, s *store.Store, db bun.IDB, rows []store.NewMessage) (written map[uuid.UUID]int, err error) {
	if store.Statements(rows) <= 1 {
		written, err = s.Outbox.Insert(ctx, db, rows)
		if err != nil && ctx.Err() != nil {
			txn.CloseEnded(ctx, db)
		}
		if _, isTx := db.(bun.Tx); isTx || !dberr.IsConflict(err) {
			return written, err
		}
		// A stricter default isolation let the statement lose a conflict.
	}
	err = txn.InTx(ctx, db, func(tx bun.Tx) (err error) {
		written, err = s.Outbox.Insert(ctx, tx, rows)
		return err
	})
	return written, err
}

// rows expands the batch to one row per message and consumer.
func (p *Producer) rows(batch []*bus.Message) ([]store.NewMessage, error) {
	rows := make([]store.NewMessage, 0, len(batch))
	said := "" // the last payload type looked up in routes
	for _, m := range batch {
		all := access.ConsumersOf(p.registry, m.PayloadType)
		consumers := flow.Recipients(m, all)
		var names []string
		if len(consumers) == len(all) && m.PayloadType != said {
			said, names = m.PayloadType, p.routes.list(m.PayloadType, consumers)
		}
		if len(consumers) == 0 && m.Event == nil {
			return nil, fmt.Errorf("payload %q: %w", m.PayloadType, bus.ErrNoConsumer)
		}
		extra := store.Extras{
			Event: m.Event, EventSize: len(m.Payload), Replay: m.Replay, UniqueFor: m.UniqueFor, Consumers: names,
			Key: forwardedKey(m, consumers),
		}
		if m.Event == nil {
			extra.Schema = access.Schema(p.registry, m)
		}
		headers, err := store.EncodeHeaders(m.Headers, extra)
		if err != nil {
			return nil, err
		}
		for _, consumer := range consumers {
			rows = append(rows, store.RowOf(m, consumer, headers))
		}
	}
	return rows, nil
}
