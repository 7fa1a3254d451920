package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// EncodeHeaders returns the headers of a message as they are stored, and with them what has
// no column: the event that it delivers, whose text has so many bytes, and for how long its
// insert id stays taken.
func EncodeHeaders(headers map[string]string, event *bus.Event, size int, uniqueFor time.Duration) (string, error) {
	if len(headers) == 0 && event == nil && uniqueFor == 0 {
		return "", nil
	}
	if event != nil || uniqueFor > 0 {
		all := make(map[string]string, len(headers)+2)
		maps.Copy(all, headers)
		if uniqueFor > 0 {
			all[dialect.UniqueForHeader] = uniqueFor.String()
		}
		if event != nil {
			all[dialect.EventHeader] = fmt.Sprintf("%d %d", event.Sequence, size)
		}
		if mode := event.Mode(); mode != "" {
			all[dialect.ModeHeader] = mode
		}
		headers = all
	}
	text, err := json.Marshal(headers)
	if err != nil {
		return "", fmt.Errorf("encode headers: %w", err)
	}
	return string(text), nil
}

const readReferred = `SELECT ` + eventColumns + ` FROM {events} e WHERE e.sequence IN (?)`

// FillIn reads the events that messages refer to. An event that was erased leaves
// its message without a text.
func (s *Store) FillIn(ctx context.Context, db bun.IDB, messages []dialect.Message) error {
	var sequences []int64
	for i := range messages {
		if sequence, _, ok := messages[i].RefersTo(); ok {
			sequences = append(sequences, sequence)
			messages[i].Event = &dialect.Event{Sequence: sequence}
		}
	}
	if len(sequences) == 0 {
		return nil
	}
	rows, err := read[[]dialect.Event](ctx, s, db, readReferred, bun.List(sequences))
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	bySequence := make(map[int64]*dialect.Event, len(rows))
	for i := range rows {
		bySequence[rows[i].Sequence] = &rows[i]
	}
	for i := range messages {
		if m := &messages[i]; m.Event != nil && bySequence[m.Event.Sequence] != nil {
			m.Event = bySequence[m.Event.Sequence]
			m.Payload = m.Event.Data
		}
	}
	return nil
}

// ErrDropped is eventlog.ErrDrop.
var ErrDropped = errors.New("the event is obsolete")
