package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

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
