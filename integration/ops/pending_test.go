package ops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// TestOperationsOnWhatIsPending cancel and reschedule what was there when they were planned.
func TestOperationsOnWhatIsPending(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"))
		a.ProduceMany(20)
		a.Exec("UPDATE consumer_messages SET created_at = " + testapp.In(db, -time.Hour) + " WHERE id <= 10")
		d := serviceOf(t, db, a.Registry)
		s, ctx := operator.As(d, someone(ops.Administrator)), t.Context()
		runner(t, d)
		do := func(action ops.Action, target ops.Target) ops.Operation {
			t.Helper()
			o := planned(t, s, action, target)
			a.ProduceMany(1) // which comes too late
			_ = testapp.Must[ops.Operation](t)(s.Operations().Start(ctx, o.ID, ops.StartOptions{Rate: 1000, Reason: "why"}))
			return awaitState(t, s, o.ID, ops.Done)
		}
		tomorrow := time.Now().Add(24 * time.Hour)
		if o := do(ops.Reschedule, ops.Target{Pending: &admin.Filter{Consumer: "c"}, At: tomorrow}); o.Changed != 20 ||
			a.Count("SELECT count(*) FROM consumer_messages WHERE available_after > "+testapp.In(db, time.Hour)) != 20 {
			t.Errorf("reschedule: got %+v, want 20 changed", o)
		}
		if o := do(ops.RunNow, ops.Target{Pending: &admin.Filter{Consumer: "c", State: admin.Delayed}}); o.Changed != 20 ||
			a.Count("SELECT count(*) FROM consumer_messages WHERE available_after > "+testapp.In(db, time.Hour)) != 0 {
			t.Errorf("run now: got %+v, want 20 changed", o)
		}
		old := a.Count("SELECT count(*) FROM consumer_messages WHERE created_at < " + testapp.In(db, -30*time.Minute))
		if o := do(ops.Cancel, ops.Target{Pending: &admin.Filter{OlderThan: 30 * time.Minute}}); int(o.Changed) != old || old != 10 ||
			len(a.Pending()) != 36 {
			t.Errorf("cancel: got %+v and %d pending, want 10 changed and 36 pending", o, len(a.Pending()))
		}
	})
}

// TestMessagesByID lists those that are there, and says who holds them, to who may see all of them.
func TestMessagesByID(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"))
		a.ProduceMany(2)
		d := serviceOf(t, db, a.Registry)
		claim := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), a.Registry.Tables()))
		held := testapp.Must[store.Claim](t)(claim.Claims.Claim(t.Context(), db, store.ClaimRequest{Owner: "o", Lease: time.Minute,
			MaxBytes: 1 << 20, Wants: []store.Want{{Consumer: "d", Payload: testapp.Order{}.PayloadType(), Limit: 1}}}))
		ids := store.Each(a.Pending(), func(m testapp.Row) int64 { return m.ID })
		viewer := operator.As(d, someone(ops.Viewer))
		found := testapp.Must[[]admin.Message](t)(viewer.Messages().ListByID(t.Context(), append(ids[1:], ids[3]+1000)...))
		for _, m := range found {
			if holds := m.Claim != nil && m.Claim.ID == held.ID; holds != (m.ID == held.Messages[0].ID) || !slices.Contains(ids[1:], m.ID) ||
				m.Payload != nil {
				t.Errorf("got %+v, want one of %v that is held if it is %d", m, ids[1:], held.Messages[0].ID)
			}
		}
		if len(found) != 3 {
			t.Errorf("got %+v, want 3", found)
		}
		narrow := operator.As(d, ops.Principal{Name: "ada", Role: ops.Viewer,
			Allow: func(_ ops.Action, consumer string) bool { return consumer != "d" }})
		if found, err := narrow.Messages().ListByID(t.Context(), ids...); !errors.Is(err, ops.ErrForbidden) || len(found) != 0 {
			t.Errorf("not all are allowed: got %+v and %v, want ErrForbidden", found, err)
		}
	})
}

// TestWhatComesBackStopsIt: an operation whose messages fail again in the same way pauses, canaries or not.
func TestWhatComesBackStopsIt(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error { return bus.Permanent(errors.New("no luck")) }))
		a.ProduceMany(200)
		p := a.Start(testapp.Fast())
		testapp.Eventually(t, "all are poisoned", func() bool { return len(a.Poisoned()) == 200 })
		p.MustStop()
		d := serviceOf(t, db, a.Registry)
		s := operator.As(d, someone(ops.Administrator))
		runner(t, d)
		a.Start(testapp.Fast())
		groups, _, err := s.Poisoned().Groups(t.Context(), "")
		if err != nil || len(groups) != 1 {
			t.Fatalf("got %+v, error %v, want one group", groups, err)
		}
		target := ofConsumer("c")
		target.Poisoned.Fingerprint = groups[0].Fingerprint
		o := planned(t, s, ops.Requeue, target)
		_ = testapp.Must[ops.Operation](t)(s.Operations().Start(t.Context(), o.ID, ops.StartOptions{Rate: 30, Canary: -1, Reason: "hope"}))
		o = awaitState(t, s, o.ID, ops.Paused)
		if o.Changed < 20 || o.Changed >= 200 {
			t.Errorf("got %+v, want it paused on the way", o)
		}
	})
}

// TestExplainWithoutConsumers: a program of operators has no consumers, and goes by what the fleet tells.
func TestExplainWithoutConsumers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Produce(testapp.Order{})
		s := operator.As(serviceOf(t, db, testapp.Must[*bus.Registry](t)(bus.NewRegistry())), someone(ops.Administrator))
		id := int64(a.Count("SELECT MAX(id) FROM consumer_messages"))
		if e := testapp.Must[admin.Explanation](t)(s.Messages().Explain(t.Context(), id)); e.Reason != admin.NoConsumer {
			t.Errorf("with nobody known: got %+v, want no consumer", e)
		}
		ago := testapp.In(db, -time.Hour)
		a.Exec("INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state) VALUES ('p', 'processor', 'h', 1, 'shop', 'v1', "+ago+", "+ago+", ?, '{}')",
			`{"consumers":[{"name":"c","payload_types":["order.placed"]}]}`)
		if e := testapp.Must[admin.Explanation](t)(s.Messages().Explain(t.Context(), id)); e.Reason != admin.NoLiveProcess {
			t.Errorf("with nobody alive: got %+v, want no live process", e)
		}
		testapp.OK(t, s.Consumers().Pause(t.Context(), "c", "it burns"))
		if e := testapp.Must[admin.Explanation](t)(s.Messages().Explain(t.Context(), id)); e.Reason != admin.Paused {
			t.Errorf("paused: got %+v, want that", e)
		}
	})
}

// TestPreviewsOfPendingHaveTheirKinds: what a change of many would touch is shown by consumer and payload type, as it is
// for poisoned messages.
func TestPreviewsOfPendingHaveTheirKinds(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"))
		a.ProduceMany(1200) // more than one statement counts
		a.Exec("UPDATE consumer_messages SET payload_type = 'order.lost', created_at = " + testapp.In(db, -time.Hour) +
			" WHERE id = (SELECT id FROM (SELECT min(id) AS id FROM consumer_messages WHERE consumer_type = 'd') x)")
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		p := planned(t, s, ops.Cancel, ops.Target{Pending: &admin.Filter{}}).Preview
		var got []string
		for _, k := range p.Pending {
			got = append(got, fmt.Sprint(k.Consumer, " ", k.PayloadType, " ", k.Messages, " ", k.Newest.Sub(k.Oldest) < time.Minute,
				" ", time.Since(k.Newest) > 30*time.Minute))
		}
		placed := (order{}).PayloadType()
		want := []string{"c " + placed + " 1200 true false", "d order.lost 1 true true", "d " + placed + " 1199 true false"}
		if !slices.Equal(got, want) || !slices.Equal(p.Consumers, []string{"c", "d"}) || p.Messages != 2400 {
			t.Errorf("got %q of %q, %d messages, want %q", got, p.Consumers, p.Messages, want)
		}
	})
}

// TestNextFires: the first is when the schedule fires next, also of one that counts from its last fire.
func TestNextFires(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer))
		for expression, every := range map[string]time.Duration{"@every 90m": 90 * time.Minute, "@hourly": time.Hour} {
			id := testapp.Must[int64](t)(a.Scheduler().Upsert(t.Context(), db, order{}, expression, "Asia/Tokyo", schedule.Name(expression)))
			got := testapp.Must[operator.Schedule](t)(s.Schedules().Get(t.Context(), id))
			if len(got.Next) != 5 {
				t.Fatalf("%s: got %s, want five", expression, got.Next)
			}
			for i, at := range got.Next {
				if want := got.NextFire.Add(time.Duration(i) * every); !at.Equal(want) || at.Location().String() != "Asia/Tokyo" {
					t.Errorf("%s: fire %d: got %s, want %s, in its zone", expression, i, at, want)
				}
			}
		}
	})
}
