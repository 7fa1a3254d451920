package eventlog

import (
	"context"
	"fmt"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

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
		m.PayloadType, m.Value, m.Event.Schema = known.name, event, known.newest()
		i, ok := places[m.Event.Stream]
		if !ok {
			i = len(a.writes)
			places[m.Event.Stream] = i
			a.writes, a.order = append(a.writes, Write{Stream: m.Event.Stream, Expected: AnyVersion}), append(a.order, i)
		}
		a.writes[i].Events = append(a.writes[i].Events, event)
	}
	a.appended = make([]Appended, len(a.writes))
	return nil
}
