package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func TestSchedulesAreListedInPages(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		s, ctx := a.Scheduler(), t.Context()
		var want []int64
		for i := range 7 {
			want = append(want, testapp.Must[int64](t)(s.Create(ctx, db, order{ID: fmt.Sprint(i)}, "@yearly", "UTC", schedule.Tag("t"),
				schedule.Header("h", "v"))))
			testapp.Must[int64](t)(s.Create(ctx, db, order{ID: "x"}, "@yearly", "UTC", schedule.Tag("other")))
		}
		var sent []string
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
		for _, brief := range []bool{false, true} {
			sent = nil
			var got []int64
			pages := 0
			for page := (&admin.Page{Size: 3, Brief: brief}); page != nil; pages++ {
				var rows []schedule.Schedule
				var err error
				if rows, page, err = s.List(ctx, hooked, schedule.Filter{Tag: "t"}, *page); err != nil {
					t.Fatal(err)
				}
				for _, row := range rows {
					got = append(got, row.ID)
					if large := len(row.Payload) + len(row.Headers); brief != (large == 0) {
						t.Errorf("brief %t: got payload %q and headers %v", brief, row.Payload, row.Headers)
					}
				}
			}
			if !slices.Equal(got, want) || pages != 3 {
				t.Errorf("brief %t: got %v in %d pages, want %v in 3", brief, got, pages, want)
			}
			for _, query := range sent {
				if strings.Contains(query, "payload,") == brief || !strings.Contains(query, "LIMIT 4") {
					t.Errorf("brief %t: got %s", brief, query)
				}
			}
		}
		got := testapp.Must[schedule.Schedule](t)(s.Get(ctx, db, want[1]))
		if got.ID != want[1] || string(got.Payload) != `{"id":"1","n":0}` || got.Headers["h"] != "v" || !got.RunAt.IsZero() ||
			len(got.Recent) != 0 {
			t.Errorf("get: got %+v", got)
		}
		testapp.OK(t, s.Trigger(ctx, db, want[1]))
		if got := testapp.Must[schedule.Schedule](t)(s.Get(ctx, db, want[1])); time.Since(got.RunAt).Abs() > time.Hour {
			t.Errorf("run at: got %s, want about now", got.RunAt)
		}
		for _, id := range []int64{0, -1, 1 << 40} {
			if _, err := s.Get(ctx, db, id); !errors.Is(err, schedule.ErrNotFound) || !strings.HasPrefix(err.Error(), "schedule: get ") {
				t.Errorf("get %d: got %v, want ErrNotFound", id, err)
			}
		}
		for _, page := range []admin.Page{{Size: -1}, {Size: 1001}, {After: "!"}, {After: "e30"}} {
			if _, _, err := s.List(ctx, db, schedule.Filter{}, page); !errors.Is(err, bus.ErrInvalidOption) {
				t.Errorf("page %+v: got %v, want ErrInvalidOption", page, err)
			}
		}
	})
}

func TestLastFiresOfASchedule(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"))
		s, ctx := a.Scheduler(), t.Context()
		id := testapp.Must[int64](t)(s.Upsert(ctx, db, order{}, "@every 1h", "UTC", schedule.Name("n")))
		other := testapp.Must[int64](t)(s.Upsert(ctx, db, order{}, "@every 1h", "UTC", schedule.Name("other")))
		fire := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, schedule.ProcessorConfig{}))
		get := func(id int64) schedule.Schedule { return testapp.Must[schedule.Schedule](t)(s.Get(ctx, db, id)) }
		var due []time.Time
		for i := range 12 {
			if i == 11 {
				a.Exec("UPDATE scheduled_messages SET cron_expression = 'whenever' WHERE id = ?", id)
			}
			makeDue(a, time.Minute)
			due = append(due, get(id).NextFire)
			if n := testapp.Must[int](t)(fire.FireDue(ctx)); n != 2 {
				t.Fatalf("fired: got %d, want 2", n)
			}
		}
		got := get(id)
		if len(got.Recent) != 10 {
			t.Fatalf("last fires: got %+v, want ten", got.Recent)
		}
		for i, f := range got.Recent {
			if !f.Due.Equal(due[i+2]) || f.FiredAt.Sub(f.Due) < time.Minute || f.FiredAt.Sub(f.Due) > time.Hour {
				t.Errorf("fire %d: got %+v, want it due at %s and fired a minute later", i, f, due[i+2])
			}
			if bad := i == 9; bad != strings.Contains(f.Error, "whenever") || bad != (f.Messages == 0) || !bad && f.Messages != 2 {
				t.Errorf("fire %d: got %+v", i, f)
			}
		}
		if list, _, err := s.List(ctx, db, schedule.Filter{Name: "n"}, admin.Page{Brief: true}); err != nil || len(list) != 1 ||
			!slices.Equal(list[0].Recent, got.Recent) {
			t.Errorf("list: got %+v and %v, want the same fires", list, err)
		}
		// Another expression is no other schedule, and a run beside its times is a fire.
		testapp.OK(t, testapp.Second(s.Upsert(ctx, db, order{}, "@every 2h", "UTC", schedule.Name("n"))))
		testapp.OK(t, s.Trigger(ctx, db, id))
		asked := get(id).RunAt
		testapp.Must[int](t)(fire.FireDue(ctx))
		if last := get(id).Recent; len(last) != 10 || !last[9].Due.Equal(asked) || last[9].Messages != 2 || last[8].Error == "" {
			t.Errorf("after a run now: got %+v, want the fire of %s last", last, asked)
		}
		if n := a.Count("SELECT count(*) FROM schedule_fires"); n != 2 {
			t.Errorf("fires: got %d rows, want 2", n)
		}
		// A program of an older version, which knows nothing of fires, deletes the row alone.
		a.Exec("DELETE FROM scheduled_messages WHERE id = ?", id)
		if n := a.Count("SELECT count(*) FROM schedule_fires WHERE schedule_id = ?", id); n != 0 {
			t.Errorf("fires of a deleted schedule: got %d rows, want none", n)
		}
		if err := s.DeleteByID(ctx, db, other); err != nil || a.Count("SELECT count(*) FROM schedule_fires") != 0 {
			t.Errorf("delete: got %v, want no fires left", err)
		}
	})
}

// TestWhatCannotBeReadOfLastFiresStopsNoSchedule: another version may write them otherwise.
func TestWhatCannotBeReadOfLastFiresStopsNoSchedule(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		s, ctx := a.Scheduler(), t.Context()
		id := testapp.Must[int64](t)(s.Upsert(ctx, db, order{}, "@every 1h", "UTC", schedule.Name("n")))
		a.Exec("INSERT INTO schedule_fires (schedule_id, recent) VALUES (?, '[{')", id)
		makeDue(a, time.Minute)
		fire := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, schedule.ProcessorConfig{}))
		if n, err := fire.FireDue(ctx); n != 1 || err != nil {
			t.Errorf("fired: got %d and %v, want 1", n, err)
		}
		if got := rowsOf(t, s, db, schedule.Filter{})[0].Recent; len(got) != 1 || got[0].Messages != 1 {
			t.Errorf("last fires: got %+v, want one", got)
		}
	})
}
