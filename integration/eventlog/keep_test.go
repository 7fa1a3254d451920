package eventlog_test

import (
	"context"
	"errors"
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

// TestErasureReachesWhatIsKept: neither what was consumed before nor what was pending keeps headers or payloads of an erased stream.
func TestErasureReachesWhatIsKept(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		consume := func(context.Context, opened) error { return nil }
		a := newApp(t, db, bus.Consume("welcome", consume, bus.Keep(time.Hour), bus.KeepPayload()))
		write := func(ctx context.Context, tx bun.Tx, stream string) error {
			return testapp.Second(a.log.AppendAll(ctx, tx, eventlog.Write{Stream: stream, Expected: eventlog.AnyVersion,
				Events: []bus.Payload{opened{"ann"}}, Headers: map[string]string{"who": "ann"}}))
		}
		kept := func(n int) func() bool {
			return func() bool { return a.count("SELECT count(*) FROM consumed_messages") == n }
		}
		testapp.OK(t, a.inTx(func(ctx context.Context, tx bun.Tx) error {
			return errors.Join(write(ctx, tx, "account-1"), write(ctx, tx, "account-2"))
		}))
		a.process()
		eventually(t, "two are kept", kept(2))
		a.exec(`UPDATE consumed_messages SET payload = '{"owner":"ann"}', reason = 'ann'`) // as after an edit
		testapp.OK(t, a.inTx(func(ctx context.Context, tx bun.Tx) error {
			return errors.Join(write(ctx, tx, "account-1"), a.log.Tombstone(ctx, tx, "account-1"))
		}))
		eventually(t, "the discarded one is kept", kept(3))
		if n := a.count("SELECT count(*) FROM consumed_messages WHERE headers LIKE '%ann%' AND payload LIKE '%ann%' AND reason = 'ann'"); n != 1 {
			t.Errorf("other streams: got %d rows with everything, want 1", n)
		}
		left := "SELECT count(*) FROM consumed_messages WHERE headers LIKE '%ann%' OR payload LIKE '%ann%' OR reason LIKE '%ann%'"
		if n := a.count(left); n != 1 {
			t.Errorf("got %d rows with a trace of the owner, want 1: that of another stream", n)
		}
	})
}
