package eventlog_test

import (
	"context"
	"errors"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// unreadable is moved with an upcaster that cannot read the amount 3.
type unreadable struct {
	Amount int `json:"amount"`
}

func (unreadable) PayloadType() string { return "account.moved" }

func (unreadable) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(_ context.Context, text []byte) ([]byte, error) {
		if string(text) == `{"amount":3}` {
			return nil, bus.Permanent(errors.New("unreadable"))
		}
		return text, nil
	}}
}

// TestABatchPassesNoUndecodableEvent, whatever becomes of the events before it.
func TestABatchPassesNoUndecodableEvent(t *testing.T) {
	t.Parallel()
	failed := errors.New("not wanted")
	for name, test := range map[string]struct {
		fails error
		layer bus.Middleware
	}{
		"discards": {bus.Discard(failed), func(next bus.Handler) bus.Handler { return next }},
		"a layer swallows its error": {failed, func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error {
				if err := next(ctx, m); !errors.Is(err, failed) {
					return err
				}
				return nil
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
				newApp(t, db).append("account-1", eventlog.NoStream, moved{1}, moved{2}, moved{3}, moved{4})
				all := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[unreadable]()))
				l := setup{types: all}.newLedger(t, db)
				p := projection.Projection{Name: "p", Types: []string{"account.moved"}}
				p.Batch = func(context.Context, bun.Tx, []eventlog.RecordedEvent) error { return test.fails }
				r := testapp.Must[*projection.Runner](t)(
					projection.NewRunner(l.db, l.log, projection.RunnerConfig{Chain: []bus.Middleware{test.layer}}, p))
				_, err := r.CatchUp(l.ctx)
				if n := l.count("SELECT position FROM event_subscriptions"); n != 2 || err == nil {
					t.Errorf("position: got %d and error %v, want 2 and that of the event behind it", n, err)
				}
			})
		})
	}
}

// TestALayerThatPassesAnUndecodableEventPassesOnlyThat, not the events of the page behind it.
func TestALayerThatPassesAnUndecodableEventPassesOnlyThat(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		newApp(t, db).append("account-1", eventlog.NoStream, moved{3}, moved{4}, moved{5})
		all := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[unreadable]()))
		l := setup{types: all}.newLedger(t, db)
		applied := 0
		p := projection.Projection{Name: "p", Types: []string{"account.moved"}}
		p.Batch = func(_ context.Context, _ bun.Tx, events []eventlog.RecordedEvent) error {
			applied += len(events)
			return nil
		}
		swallow := func(next bus.Handler) bus.Handler {
			return func(ctx context.Context, m *bus.Message) error { _ = next(ctx, m); return nil }
		}
		r := testapp.Must[*projection.Runner](t)(
			projection.NewRunner(l.db, l.log, projection.RunnerConfig{Chain: []bus.Middleware{swallow}}, p))
		l.catchUp(r)
		if applied != 2 {
			t.Errorf("applied: got %d events, want the 2 behind the one that cannot be decoded", applied)
		}
	})
}
