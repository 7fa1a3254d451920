package eventlog_test

import (
	"context"
	"maps"
	"testing"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAnImportThatIsRepeatedIsAsGiven: RunInTx repeats what loses a conflict, with the same messages.
func TestAnImportThatIsRepeatedIsAsGiven(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		marks := bus.EachMessage(func(_ context.Context, m *bus.Message) error { m.Headers["mark"] += "x"; return nil })
		a := setup{producer: outbox.ProducerConfig{Layers: []bus.SendMiddleware{marks}}}.newApp(t, db)
		given := map[string]string{"mark": "by "}
		m := &bus.Message{ID: uuid.Must(uuid.NewV7()), PayloadType: "account.moved", Payload: []byte(`{"amount":7}`), Headers: maps.Clone(given), Event: &bus.Event{Stream: "account-1"}}
		tries := 0
		err := a.log.RunInTx(a.ctx, db, func(ctx context.Context, tx bun.Tx) error {
			if err := a.log.Import(ctx, tx, m); err != nil {
				return err
			}
			if tries++; tries < 3 {
				return &eventlog.ConflictError{Stream: "account-2"}
			}
			return nil
		})
		events := a.stream("account-1")
		if err != nil || tries != 3 || len(events) != 1 || events[0].Data != (moved{7}) || events[0].Headers["mark"] != "by x" {
			t.Errorf("got %+v, error %v after %d tries, want the event as it was given, once, in the third", events, err, tries)
		}
		if !maps.Equal(m.Headers, given) || m.Event.Version != 0 || m.Event.Sequence != 0 {
			t.Errorf("the message of the caller: got %+v and event %+v, want it as it was", m, m.Event)
		}
	})
}
