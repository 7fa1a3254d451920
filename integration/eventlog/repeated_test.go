package eventlog_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAnImportThatIsRepeatedIsAsGiven: RunInTx repeats what loses a conflict, with the same messages.
func TestAnImportThatIsRepeatedIsAsGiven(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		marks := bus.PerMessage(func(_ context.Context, m *bus.Message) error { m.Headers["mark"] += "x"; return nil })
		a := setup{producer: outbox.ProducerConfig{Middleware: []bus.ProduceMiddleware{marks}}}.newApp(t, db)
		given := map[string]string{"mark": "by "}
		m := &bus.Message{ID: uuid.Must(uuid.NewV7()), PayloadType: "account.moved", Payload: []byte(`{"amount":7}`),
			Headers: maps.Clone(given), Event: &bus.Event{Stream: "account-1"}}
		tries := 0
		err := a.log.RunInTx(a.ctx, db, func(ctx context.Context, tx bun.Tx) error {
			if err := logaccess.Import(ctx, a.log, tx, m); err != nil {
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

// TestInlinesHaveHeadersOfTheirOwn: what one makes of them is neither another's nor the message's.
func TestInlinesHaveHeadersOfTheirOwn(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		all := types(t)
		var saw []string
		inline := func(name string) eventlog.Inline {
			made, err := projection.NewInline(all, projection.Projection{Name: name, Types: []string{"account.moved"},
				Batch: func(_ context.Context, _ bun.Tx, events []eventlog.RecordedEvent) error {
					saw = append(saw, events[0].Headers["by"])
					events[0].Headers["by"] = name
					return nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		a := setup{types: all, log: eventlog.LogConfig{Inline: []eventlog.Inline{inline("a"), inline("b")}}}.newApp(t, db,
			consumeMoved("c", func(context.Context, int) {}))
		err := a.inTx(func(ctx context.Context, tx bun.Tx) error {
			_, err := a.log.AppendAll(ctx, tx, eventlog.Write{Stream: "account-1", Events: []bus.Payload{moved{1}},
				Headers: map[string]string{"by": "me"}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var headers string
		if err := db.NewRaw("SELECT headers FROM consumer_messages").Scan(a.ctx, &headers); err != nil ||
			!strings.Contains(headers, `"by":"me"`) || !slices.Equal(saw, []string{"me", "me"}) {
			t.Errorf("got headers %s, error %v, and the inlines saw %q, want what was appended", headers, err, saw)
		}
	})
}
