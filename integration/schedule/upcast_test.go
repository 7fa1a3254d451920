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

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// feeV1 and feeV2 are one payload in two releases.
type (
	feeV1 struct {
		Amount int `json:"amount"`
	}
	feeV2 struct {
		Cents int `json:"cents"`
	}
)

func (feeV1) PayloadType() string { return "fee" }
func (feeV2) PayloadType() string { return "fee" }

func (feeV2) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{func(_ context.Context, text []byte) ([]byte, error) {
		if !strings.Contains(string(text), "amount") {
			return nil, errors.New("it is no schema 1")
		}
		return []byte(strings.Replace(string(text), "amount", "cents", 1)), nil
	}}
}

// TestSchedulesKeepTheirSchema: messages of a schedule that an older release wrote are upcast, those of a newer one are not, and
// an updated payload is in the newest schema. An older process fires what a newer one has written.
// Promise: upcast
func TestSchedulesKeepTheirSchema(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		ctx := t.Context()
		before := testapp.New(t, db, bus.Consume("c", func(context.Context, feeV1) error { return nil }))
		upsert := testapp.Must[int64](t)
		ids := []int64{
			upsert(before.Scheduler().Create(ctx, db, feeV1{1}, "0 0 1 1 *", "UTC")),
			upsert(before.Scheduler().Create(ctx, db, feeV1{2}, "0 0 1 1 *", "UTC", schedule.Header("tenant", "acme"))),
		}
		got := make(chan string, 10)
		now := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, f feeV2) error {
			m, _ := bus.MessageFromContext(ctx)
			got <- fmt.Sprintf("%d %s %d", f.Cents, m.Headers["tenant"], m.Schema)
			return nil
		}))
		ids = append(ids, upsert(now.Scheduler().Create(ctx, db, feeV2{3}, "0 0 1 1 *", "UTC")))
		testapp.OK(t, now.Scheduler().UpdatePayload(ctx, db, ids[1], feeV2{20}))
		for _, id := range ids {
			testapp.OK(t, now.Scheduler().Trigger(ctx, db, id))
		}
		p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, before.Registry, before.Producer, schedule.ProcessorConfig{}))
		if n := testapp.Must[int](t)(p.FireDue(ctx)); n != 3 {
			t.Fatalf("got %d schedules fired, want 3", n)
		}
		now.Start(testapp.Fast())
		var all []string
		testapp.Eventually(t, "all are done", now.Empty)
		for range min(len(got), 3) {
			all = append(all, <-got)
		}
		slices.Sort(all)
		if want := []string{"1  1", "20 acme 2", "3  2"}; !slices.Equal(all, want) {
			t.Errorf("got %q, want %q", all, want)
		}
	})
}

// olderOrder is the payload order as an older release declares it: it cannot read today's.
type olderOrder struct {
	ID int `json:"id"`
}

func (olderOrder) PayloadType() string { return order{}.PayloadType() }

// TestAnOlderReleaseDoesNotDelayWhatANewerOneCanFire: a process that cannot read a schedule leaves it to the others, which
// fire it at once and for its time. The process itself waits before it tries again.
// Promise: schedule-blocked
func TestAnOlderReleaseDoesNotDelayWhatANewerOneCanFire(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		newer := testapp.New(t, db, testapp.Consumed("c"))
		older := testapp.New(t, db, bus.Consume("c", func(context.Context, olderOrder) error { return nil }))
		s := newer.Scheduler()
		id := testapp.Must[int64](t)(s.Upsert(t.Context(), db, order{ID: "one"}, "@every 1h", "UTC", schedule.Name("n")))
		processor := func(a *app, misfire schedule.Misfire) *schedule.Processor {
			config := quiet()
			config.Misfire = misfire
			return testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, config))
		}
		cannot, can := processor(older, schedule.Skip), processor(newer, schedule.Skip)
		fire := func(p *schedule.Processor, want int) schedule.Schedule {
			t.Helper()
			if n, err := p.FireDue(t.Context()); err != nil || n != want {
				t.Fatalf("fire: got %d, error %v, want %d", n, err, want)
			}
			return testapp.Must[schedule.Schedule](t)(s.Get(t.Context(), db, id))
		}
		makeDue(newer, time.Second)
		due := rowsOf(t, s, db, schedule.Filter{})[0].NextFire
		if row := fire(cannot, 1); !strings.Contains(row.LastError, "does not fit Go type int") {
			t.Errorf("after the older release: got %+v, want its error", row)
		}
		fire(cannot, 0) // it waits
		row := fire(can, 1)
		pending := newer.Pending()
		if len(pending) != 1 || row.LastError != "" || !row.NextFire.After(due) {
			t.Fatalf("after the newer release: got %+v and %d messages, want one message and no error", row, len(pending))
		}
		if last := row.Recent[len(row.Recent)-1]; last.Error != "" || !last.Due.Equal(due) {
			t.Errorf("last fire: got %+v, want it for %s", last, due)
		}
	})
}

// TestAClockSetBackRepeatsNoFire: the database's clock was set back since the last fire, for which only @every fires again.
// Promise: schedule-once
func TestAClockSetBackRepeatsNoFire(t *testing.T) {
	t.Parallel()
	type changing func(x *refusing, s *schedule.Scheduler, id int64, expression string) error
	for name, change := range map[string]changing{
		"resumed": func(x *refusing, s *schedule.Scheduler, id int64, _ string) error { return pauseAndResume(x, s, id) },
		"updated": func(x *refusing, s *schedule.Scheduler, id int64, expression string) error {
			return s.UpdateSchedule(x.Context(), x.DB, id, expression, "UTC")
		},
		"written": func(x *refusing, s *schedule.Scheduler, _ int64, expression string) error {
			return testapp.Second(s.Upsert(x.Context(), x.DB, order{}, expression, "UTC", schedule.Name("n")))
		},
		"declared": func(x *refusing, s *schedule.Scheduler, _ int64, expression string) error {
			return s.Sync(x.Context(), x.DB, "set", schedule.Spec{Name: "n", Payload: order{}, Expression: expression, Zone: "UTC"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testdb.Each(t, func(t *testing.T, db *bun.DB) {
				x := &refusing{app: testapp.New(t, db, testapp.Consumed("c"))}
				s, ctx := x.Scheduler(), t.Context()
				for expression, changed := range map[string]string{"@hourly": "0 0 * * * MON-SUN", "@every 1h": "@every 60m"} {
					id := testapp.Must[int64](t)(s.Upsert(ctx, db, order{}, expression, "UTC", schedule.Name("n")))
					first := testapp.Must[schedule.Schedule](t)(s.Get(ctx, db, id)).NextFire
					x.setTimes(first.Add(time.Hour), first.Add(time.Second))
					testapp.OK(t, change(x, s, id, changed))
					got, again := testapp.Must[schedule.Schedule](t)(s.Get(ctx, db, id)).NextFire, expression == "@every 1h"
					if got.Before(first.Add(time.Minute)) != again || got.After(first.Add(time.Hour)) {
						t.Errorf("%s: got the next fire at %s after one for %s, want it repeated: %t", expression, got, first, again)
					}
					testapp.OK(t, s.DeleteByID(ctx, db, id))
				}
			})
		})
	}
}

// TestATriggerFiresThoughTheClockWasSetBack: it was requested at a time that is still to come now.
func TestATriggerFiresThoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		id := testapp.Must[int64](t)(a.Scheduler().Upsert(t.Context(), db, order{}, "@yearly", "UTC", schedule.Name("n")))
		if err := a.Scheduler().Trigger(t.Context(), db, id); err != nil {
			t.Fatal(err)
		}
		a.Exec("UPDATE scheduled_messages SET run_at = " + testapp.In(db, time.Hour))
		p := testapp.Must[*schedule.Processor](t)(schedule.NewProcessor(db, a.Registry, a.Producer, quiet()))
		if n, err := p.FireDue(t.Context()); err != nil || n != 1 || len(a.Pending()) != 1 {
			t.Errorf("got %d fires and %d messages, error %v, want one of each", n, len(a.Pending()), err)
		}
	})
}
