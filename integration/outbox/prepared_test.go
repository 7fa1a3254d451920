package outbox_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// collisions counts statements that were prepared although the connection had them.
type collisions struct{ n atomic.Int64 }

func (*collisions) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (c *collisions) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	if e.Err != nil && strings.Contains(e.Err.Error(), "already exists") {
		c.n.Add(1)
	}
}

// TestPartsOfAProgramPrepareNoStatementTwice: processors of one pool know nothing of each other, and look what a connection has.
func TestPartsOfAProgramPrepareNoStatementTwice(t *testing.T) {
	t.Parallel()
	var seen collisions
	var runs atomic.Int64
	db := testdb.OpenPostgres(t, testdb.DirectDSN(t)).WithQueryHook(&seen)
	a := testapp.New(t, db, testapp.Counting("c", &runs))
	var processors []*testapp.Running
	for range 3 {
		processors = append(processors, a.Start(testapp.Fast()))
	}
	for range 50 {
		if _, err := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{})).Produce(t.Context(), db,
			order{ID: "1"}); err != nil {
			t.Fatal(err)
		}
	}
	testapp.Eventually(t, "all ran", func() bool { return runs.Load() == 50 })
	for _, r := range processors {
		r.MustStop()
	}
	if n := seen.n.Load(); n > 0 {
		t.Errorf("got %d statements prepared twice on a connection, want none", n)
	}
}
