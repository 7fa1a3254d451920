package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store/dialect"
)

// Extras are data of a message beside its headers that have no column. Few messages have them, and
// no statement searches by them: what decides which message is claimed is a column.
type Extras struct {
	Event     *bus.Event // that it delivers
	EventSize int        // of the event's text, in bytes
	Replay    bool       // it is delivered again on request
	UniqueFor time.Duration
	Consumers []string // for which it is written, if a processor is to check that
	Key       string   // for consumers that pass it on and do not order by it
	Schema    int      // of the payload
}

// EncodeHeaders returns the stored form of a message's headers, with its extras.
func EncodeHeaders(headers map[string]string, extra Extras) (string, error) {
	all := headers
	if extra.Event != nil || extra.Replay || extra.UniqueFor > 0 || len(extra.Consumers) > 0 || extra.Key != "" || extra.Schema > 1 {
		all = make(map[string]string, len(headers)+2)
		maps.Copy(all, headers)
	}
	if extra.Event != nil {
		all[dialect.EventHeader] = fmt.Sprintf("%d %d", extra.Event.Sequence, extra.EventSize)
	}
	if extra.Replay {
		all[dialect.ModeHeader] = dialect.ModeReplay
	}
	if extra.UniqueFor > 0 {
		all[dialect.UniqueForHeader] = extra.UniqueFor.String()
	}
	if len(extra.Consumers) > 0 {
		all[dialect.ConsumersHeader] = strings.Join(extra.Consumers, "\n") // a name has no control characters
	}
	if extra.Key != "" {
		all[dialect.KeyHeader] = extra.Key
	}
	if extra.Schema > 1 {
		all[dialect.SchemaHeader] = strconv.Itoa(extra.Schema)
	}
	if len(all) == 0 {
		return "", nil
	}
	text, err := json.Marshal(all)
	if err != nil {
		return "", fmt.Errorf("encode headers: %w", err)
	}
	return string(text), nil
}

const readReferred = `SELECT ` + eventColumns + ` FROM {events} e WHERE e.sequence IN (?)`

// FillIn reads the events that messages refer to. The message of an erased event has no payload.
func (s *EventStore) FillIn(ctx context.Context, db bun.IDB, messages []dialect.Message) error {
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
	rows, err := read[[]dialect.Event](ctx, s.tables, db, readReferred, bun.List(sequences))
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
