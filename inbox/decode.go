package inbox

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
	"github.com/asyncmonolith/asyncmonolith-go/internal/isolate"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// arrival is a received record.
type arrival struct {
	record  broker.Record
	hash    string       // in hex: stored in the inbox
	each    []recipient  // if it is for several consumers: further hashes for the inbox
	message *bus.Message // nil if the type is unknown, the event is obsolete, or the record is parked
	unknown string       // the type, if unknown, or the consumer: see consumerOf; empty if the record has no type
	parked  error        // why it is parked
	encoded string       // the encoded parked record, once it was needed
	sent    time.Time    // the record's own time; zero if it has none
}

// recipient is one of a record's several consumers, with the hash of a record for it alone.
type recipient struct{ name, hash string }

// reader makes messages of a receiver's records.
type reader struct {
	receiver  *receiver
	registry  *bus.Registry
	abandoned *atomic.Int32 // calls of application functions that still run
}

// read makes a message of a record. It returns an error if nothing is known of the record: a
// function of the application does not return, or ctx has ended. For a record that only a newer
// process can accept the error is a newerError.
func (r *reader) read(ctx context.Context, record broker.Record) (arrival, error) {
	a, err := r.understand(ctx, record)
	_, newer := errors.AsType[*newerError](err)
	switch {
	case err == nil:
		return a, nil
	case newer, ctx.Err() != nil, errors.Is(err, isolate.ErrTimeout):
		return arrival{}, err
	}
	return a.park(err), nil
}

// readTimeout is the timeout of an application function for one record, without isolate.AskGrace.
const readTimeout = 5 * time.Second

// errHung is returned when an application function does not return. It is immutable.
var errHung = fmt.Errorf("a function of the application has not returned within %s: %w", readTimeout, isolate.ErrTimeout)

// ask calls an application function for a record. The error is an isolate.ErrTimeout if it says
// nothing of the record: errHung, or isolate.ErrBusy if the function is not called.
func ask[T any](ctx context.Context, r *reader, what string, fn func(ctx context.Context) (T, error)) (T, error) {
	answer, err := isolate.Ask(ctx, what, r.abandoned, readTimeout, func(ctx context.Context) (T, error) {
		answer, err := fn(ctx)
		if err != nil && ctx.Err() != nil { // the function may have given up for this reason
			err = context.Cause(ctx)
		}
		return answer, err
	})
	if err == isolate.ErrTimeout { //nolint:errorlint // ErrBusy wraps it
		err = fmt.Errorf("%s: %w", what, errHung)
	}
	return answer, err
}

// understand makes a message of a record. Except for a newerError, the error is why the record is
// parked.
func (r *reader) understand(ctx context.Context, record broker.Record) (arrival, error) {
	a := arrival{record: record}
	mapped, e, err := r.mapped(ctx, record)
	if err != nil {
		// A shared topic may carry invalid events of other programs, which are ignored.
		kind := typeOf(mapped)
		switch {
		case errors.Is(err, errNoEvent) && mapped.Body == nil: // of a removed key: ignored whatever its type
			return a, nil
		case kind != "" && r.receiver.types[kind] == "":
			a.unknown = cloudevents.Printable(kind)
			return a, nil
		}
		return a, err
	}
	a.sent, _ = time.Parse(time.RFC3339, e.Attributes["time"]) //nolint:errcheck // it is shown only
	payloadType, known := r.receiver.types[e.Attributes["type"]]
	if !known {
		a.unknown = cloudevents.Printable(e.Attributes["type"]) // no type is taken for an entry of consumerOf
		return a, nil
	}
	if payloadType == tombstone && len(e.Data) == 0 {
		e.Data, err = ask(ctx, r, "Codec", func(context.Context) ([]byte, error) {
			return r.registry.Codec().Encode(eventlog.Tombstoned{Stream: e.Attributes["subject"]})
		})
		if err != nil {
			return a, err
		}
	}
	m, err := message(payloadType, e, mapped)
	switch {
	case err != nil:
		return a, err
	case r.receiver.appends:
		err = r.event(ctx, m)
	default:
		m.Schema = max(m.Schema, 1)
		if name := unknownConsumer(r.registry, m); name != "" {
			a.unknown = consumerOf(e.Attributes["type"], name)
			err = fmt.Errorf("the record is for consumer %q, which is not registered for payload %q here", cloudevents.Short(name), payloadType)
		} else {
			err = r.key(ctx, m)
		}
	}
	switch {
	case access.Obsolete(err):
		return a, nil
	case access.IsNewer(err), err == nil && r.receiver.appends && m.Schema > r.newest(payloadType):
		err = &newerError{eventType: e.Attributes["type"], schema: m.Schema}
	case err == nil:
		a.accept(m, e, r.receiver.replay)
	}
	return a, err
}

// key sets a message's key from its payload if a consumer needs one, since an obsolete payload or
// one of an unknown schema has none. For the newest schema, it leaves that to the producer.
func (r *reader) key(ctx context.Context, m *bus.Message) error {
	keyed := func(c bus.Consumer) bool { config := c.Config(); return access.Keyed(&config) }
	if m.OrderingKey != "" || m.Schema == r.newest(m.PayloadType) ||
		!slices.ContainsFunc(access.ConsumersOf(r.registry, m.PayloadType), keyed) {
		return nil
	}
	own := *m // an abandoned call may still write it
	key, err := ask(ctx, r, "OrderingKey", func(context.Context) (string, error) {
		err := access.SetKey(r.registry, &own)
		return own.OrderingKey, err
	})
	m.OrderingKey = key
	return err
}

// accept makes a record's event its message.
func (a *arrival) accept(m *bus.Message, e cloudevents.Event, replay bool) {
	m.Replay = replay
	hashFor := func(consumers []string) string {
		return cloudevents.Hash("event", e.Attributes["source"], e.Attributes["id"], cloudevents.JoinNames(consumers))
	}
	a.message, a.hash = m, hashFor(m.Recipients)
	if len(m.Recipients) > 1 {
		for _, name := range m.Recipients {
			a.each = append(a.each, recipient{name, hashFor([]string{name})})
		}
	}
}

// hashes are all hashes of a record for the inbox.
func (a arrival) hashes() []string {
	all := []string{a.hash}
	return append(all, store.Each(a.each, func(r recipient) string { return r.hash })...)
}

// isNew reports whether a record is new, given the hashes that were added to the inbox. It removes
// its own hashes from added. A record for several consumers is limited to those that did not have
// it.
func (a arrival) isNew(added map[string]bool) bool {
	take := func(hash string) bool {
		is := added[hash]
		delete(added, hash) // the batch may have it twice
		return is
	}
	if !take(a.hash) {
		return false
	}
	if len(a.each) == 0 {
		return true
	}
	a.message.Recipients = nil
	for _, one := range a.each {
		if take(one.hash) {
			a.message.Recipients = append(a.message.Recipients, one.name)
		}
	}
	return len(a.message.Recipients) > 0
}

// park marks a record to be parked. Its hash covers the whole record, because it may have no id.
func (a arrival) park(reason error) arrival {
	parts := []string{"parked", a.record.Destination, a.record.Key, a.record.ID, a.record.ContentType, string(a.record.Body)}
	for _, fields := range []map[string]string{a.record.Attributes, a.record.Headers} {
		parts = append(parts, fmt.Sprint(len(fields)))
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			parts = append(parts, name, fields[name])
		}
	}
	a.message, a.each, a.parked, a.hash = nil, nil, reason, cloudevents.Hash(parts...)
	return a
}

// mapped applies MapRecord's function to a record and reads its event.
func (r *reader) mapped(ctx context.Context, record broker.Record) (mapped broker.Record, e cloudevents.Event, err error) {
	if r.receiver.mapping != nil {
		given := record // an abandoned call may still read it
		record, err = ask(ctx, r, "MapRecord", func(context.Context) (broker.Record, error) {
			mapped, err := r.receiver.mapping(given)
			if err != nil {
				err = fmt.Errorf("MapRecord: %w", err)
			}
			return mapped, err
		})
		if err != nil {
			return broker.Record{}, cloudevents.Event{}, err
		}
	}
	e, err = readEvent(record)
	return record, e, err
}

// typeOf returns a record's event type, even if the rest is invalid; empty if it has none.
func typeOf(record broker.Record) string {
	if mediaType, _, _ := strings.Cut(record.ContentType, ";"); strings.EqualFold(strings.TrimSpace(mediaType), cloudevents.Structured) {
		return cloudevents.TypeOf(record.Body)
	}
	return record.Attributes["type"]
}

// errNoEvent is returned for records that are not CloudEvents.
var errNoEvent = errors.New("the record is not a CloudEvent")

// readEvent reads an event in binary or structured mode.
func readEvent(record broker.Record) (e cloudevents.Event, err error) {
	mediaType, _, _ := strings.Cut(record.ContentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	switch {
	case mediaType == cloudevents.Structured:
		if e, err = cloudevents.Parse(record.Body); err != nil {
			return e, err
		}
	case strings.HasPrefix(mediaType, "application/cloudevents"):
		return e, fmt.Errorf("content type %q: %s or binary mode is allowed", cloudevents.Short(mediaType), cloudevents.Structured)
	case record.Attributes["specversion"] == "":
		return e, errNoEvent
	default:
		e = cloudevents.Event{Attributes: record.Attributes, ContentType: record.ContentType, Data: record.Body}
	}
	return e, e.Check()
}

// message makes a message of an event.
func message(payloadType string, e cloudevents.Event, record broker.Record) (*bus.Message, error) {
	if data := bytes.TrimSpace(e.Data); len(data) == 0 || string(data) == "null" {
		return nil, errors.New("the event has no data")
	}
	headers, err := cloudevents.Incoming(record.Headers)
	if err != nil {
		return nil, err
	}
	m := &bus.Message{ID: messageID(e.Attributes["source"], e.Attributes["id"]), PayloadType: payloadType, Payload: e.Data, Headers: headers}
	m.OrderingKey = cmp.Or(record.Key, e.Attributes["partitionkey"])
	if m.Recipients, err = cloudevents.SplitNames(e.Attributes[cloudevents.ConsumersAttribute]); err != nil {
		return nil, err
	}
	if text, ok := e.Attributes[cloudevents.SchemaAttribute]; ok {
		if m.Schema, err = strconv.Atoi(text); err != nil || m.Schema < 1 {
			return nil, fmt.Errorf("attribute %s %q: 1 or more is allowed", cloudevents.SchemaAttribute, cloudevents.Short(text))
		}
	}
	if m.Headers["traceparent"] == "" && e.Attributes["traceparent"] != "" {
		if m.Headers == nil {
			m.Headers = make(map[string]string, 2)
		}
		m.Headers["traceparent"] = e.Attributes["traceparent"]
		if state := e.Attributes["tracestate"]; state != "" {
			m.Headers["tracestate"] = state
		}
	}
	return m, nil
}

// space is the UUID namespace of derived ids. It is immutable.
var space = uuid.MustParse("6f2f6a53-1b44-5c0e-9b0f-3d6d2c6a7d10")

// messageID returns the event's id if it is a UUID, otherwise a UUID derived from source and id.
func messageID(source, id string) uuid.UUID {
	if parsed, err := uuid.Parse(id); err == nil && len(id) == 36 && parsed != uuid.Nil {
		return parsed
	}
	return uuid.NewSHA1(space, []byte(source+"\x00"+id))
}

// unknownConsumer returns a consumer of the record that is not registered here, or "".
func unknownConsumer(registry *bus.Registry, m *bus.Message) string {
	consumers := access.ConsumersOf(registry, m.PayloadType)
	for _, name := range m.Recipients {
		if !slices.ContainsFunc(consumers, func(c bus.Consumer) bool { return slices.Contains(access.Names(c), name) }) {
			return name
		}
	}
	return ""
}

// newest returns the newest known schema of a payload type.
func (r *reader) newest(payloadType string) int {
	if r.receiver.appends {
		return logaccess.NewestSchema(access.Events(r.registry), payloadType)
	}
	return len(r.receiver.upcasters[payloadType]) + 1
}

// event turns a message into an event.
func (r *reader) event(ctx context.Context, m *bus.Message) error {
	if m.OrderingKey == "" {
		return errors.New("the record has no key: the name of its stream needs one")
	}
	if m.Schema == 0 && len(r.receiver.upcasters[m.PayloadType]) > 0 {
		m.Schema = 1
	}
	if newest := r.newest(m.PayloadType); m.Schema > 0 && m.Schema < newest {
		text, err := ask(ctx, r, "Upcaster", func(ctx context.Context) ([]byte, error) {
			return access.Events(r.registry).Upcast(ctx, m.PayloadType, m.Schema, m.Payload)
		})
		if err != nil {
			return err
		}
		m.Payload, m.Schema = text, newest
	}
	m.Event = &bus.Event{Stream: r.receiver.category + "-" + m.OrderingKey}
	m.OrderingKey, m.Recipients = "", nil
	return nil
}
