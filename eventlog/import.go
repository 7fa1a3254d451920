package eventlog

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Import appends events recorded by another service, in the given order, in the transaction.
// Package relay uses it. Each message has an ID, which the event keeps, a PayloadType, a Payload
// in the newest schema here, Headers, and an Event with its Stream. Streams may have any version.
// The errors are those of [Log.Append], and a *bus.DecodeError for a payload that does not fit its
// type. Import does not modify the messages, so a transaction may be repeated with them.
func (l *Log) Import(ctx context.Context, tx bun.Tx, messages ...*bus.Message) error {
	s, db, err := l.on(tx)
	if err == nil {
		a := &appending{log: l, store: s, tx: tx, batch: store.Each(messages, (*bus.Message).Clone)}
		if err = a.prepareImport(ctx); err == nil && len(messages) > 0 {
			err = a.send(ctx, db)
		}
	}
	return dberr.Wrap(err, "eventlog: import")
}

// prepareImport completes the messages and makes one write per stream.
func (a *appending) prepareImport(ctx context.Context) error {
	places := make(map[string]int)
	for _, m := range a.batch {
		if m.Event == nil {
			return fmt.Errorf("event %q: %w: it has no stream", m.PayloadType, bus.ErrInvalidOption)
		}
		if err := checkStream(m.Event.Stream); err != nil {
			return err
		}
		known, ok := a.log.types.find(m.PayloadType)
		if !ok {
			return &UnknownTypeError{Type: m.PayloadType}
		}
		event, err := known.decode(ctx, a.log.registry.Codec(), m.Payload)
		if err != nil {
			return err
		}
		m.PayloadType, m.Value, m.Event.Schema = known.name, event, known.schema
		i, ok := places[m.Event.Stream]
		if !ok {
			i = len(a.writes)
			places[m.Event.Stream] = i
			a.writes, a.order = append(a.writes, Write{Stream: m.Event.Stream, Want: AnyVersion}), append(a.order, i)
		}
		a.writes[i].Events = append(a.writes[i].Events, event)
	}
	a.appended = make([]Appended, len(a.writes))
	return nil
}
