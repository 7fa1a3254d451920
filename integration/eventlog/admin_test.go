package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/projections"
)

// TestAdminOfProjections: all of it is seen, and resumed, by a program that has none of the functions.
func TestAdminOfProjections(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
		admin := testapp.Must[*projections.Admin](t)(projections.NewAdmin(registry))
		last := l.append("account-a", eventlog.AnyVersion, moved{-1}, moved{-2}, moved{3})
		one := func(context.Context, bun.Tx, string, int64, int) error { return nil }
		refuse := func(_ context.Context, _ bun.Tx, _ string, _ int64, amount int) error {
			if amount < 0 {
				return bus.Permanent(errors.New("a negative amount"))
			}
			return nil
		}
		sound := projection.Projection{Name: "sound", Version: 2, Shards: 2}
		parks := projection.Projection{Name: "parks", OnError: projection.Park, AttemptDelay: time.Millisecond}
		halts := projection.Projection{Name: "halts", AttemptDelay: time.Millisecond}
		ofMoves(&sound, false, one)
		ofMoves(&parks, false, refuse)
		ofMoves(&halts, false, refuse)
		r := l.runner(sound, parks, halts)
		stop := running(t, "runner", r.Run)
		testapp.OK(t, errors.Join(r.WaitFor(l.ctx, "sound", last), r.WaitFor(l.ctx, "parks", last)))
		if err := r.WaitFor(l.ctx, "halts", last); err == nil {
			t.Fatal("it is not halted")
		}
		stop()
		testapp.OK(t, r.Promote(l.ctx, "sound", 2, 0))
		states, err := admin.States(l.ctx, db)
		if err != nil || len(states) != 4 {
			t.Fatalf("states: got %+v and %v, want four", states, err)
		}
		for i, want := range []projections.State{
			{Name: "halts", Version: 1, Shards: 1, Active: true, Status: "halted"},
			{Name: "parks", Version: 1, Shards: 1, Active: true, Status: "running", Position: 3},
			{Name: "sound", Version: 2, Shards: 2, Active: true, Status: "running", Position: 3},
			{Name: "sound", Version: 2, Shard: 1, Shards: 2, Active: true, Status: "running", Position: 3},
		} {
			got := states[i]
			if time.Since(got.MovedAt).Abs() > time.Hour || time.Since(got.NextAt).Abs() > time.Hour || got.Head != 3 ||
				(i == 0) != (got.LastError != "") {
				t.Errorf("state %d: got %+v, want instants, the head, and an error if it is halted", i, got)
			}
			got.MovedAt, got.NextAt, got.Head, got.Attempts, got.LastError = want.MovedAt, want.NextAt, 0, 0, ""
			if got != want {
				t.Errorf("state %d: got %+v, want %+v", i, got, want)
			}
		}
		first, err := admin.Parked(l.ctx, db, "parks", 1, 0, 1)
		if err != nil || len(first) != 1 || first[0].Position != 1 || first[0].Stream != "account-a" {
			t.Fatalf("parked: got %+v and %v, want the first", first, err)
		}
		if second, err := admin.Parked(l.ctx, db, "parks", 1, first[0].Position, 10); err != nil || len(second) != 1 || second[0].Position != 2 {
			t.Errorf("parked behind the first: got %+v and %v, want the second", second, err)
		}
		if n, err := admin.Resume(l.ctx, db, "halts", 1); n != 1 || err != nil {
			t.Errorf("resume: got %d and %v, want 1", n, err)
		}
		if states, err := admin.States(l.ctx, db); err != nil || states[0].Status != "running" || states[0].Attempts != 0 {
			t.Errorf("resumed: got %+v and %v", states[0], err)
		}
		if _, err := admin.Resume(l.ctx, db, "nobody", 1); !errors.Is(err, projection.ErrUnknown) {
			t.Errorf("resume nobody: got %v, want ErrUnknown", err)
		}
		for _, limit := range []int{0, 1001} {
			if _, err := admin.Parked(l.ctx, db, "parks", 1, 0, limit); !errors.Is(err, bus.ErrInvalidOption) {
				t.Errorf("limit %d: got %v, want ErrInvalidOption", limit, err)
			}
		}
		if _, err := new(projections.Admin).States(l.ctx, db); err == nil {
			t.Error("the zero admin: got no error")
		}
	})
}
