package eventlog_test

import (
	"context"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestAReactorKeepsAndRepeatsWhatItConsumed without a copy of the event.
func TestAReactorKeepsAndRepeatsWhatItConsumed(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		got := make(chan string, 10)
		a := newApp(t, db, bus.Consume("welcome", func(_ context.Context, e opened) error { got <- e.Owner; return nil }, bus.Keep(time.Hour)))
		a.append("account-1", eventlog.NoStream, opened{"ann"})
		client := testapp.Must[*admin.Client](t)(admin.NewClient(a.registry))
		kept := func() []admin.ConsumedMessage {
			found, _, err := client.Consumed(a.ctx, db, admin.ConsumedFilter{Consumer: "welcome"}, admin.Page{})
			testapp.OK(t, err)
			return found
		}
		a.process()
		receive(t, got)
		eventually(t, "it is kept", func() bool { return len(kept()) == 1 })
		if first := kept()[0]; first.PayloadKept || len(first.Payload) > 0 || first.PayloadType != (opened{}).PayloadType() {
			t.Errorf("got %+v, want no payload", first)
		}
		testapp.OK(t, testapp.Second(client.Repeat(a.ctx, db, kept()[0].ID)))
		if owner := receive(t, got); owner != "ann" {
			t.Errorf("again: got %q, want the event", owner)
		}
		eventually(t, "the repetition is kept", func() bool { return len(kept()) == 2 })
	})
}
