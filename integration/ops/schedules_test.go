package ops_test

import (
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

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
