package bustest_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type OrderPlaced struct {
	ID string `json:"id"`
}

func (OrderPlaced) PayloadType() string { return "order.placed" }

type OrderCharged struct {
	ID string `json:"id"`
}

func (OrderCharged) PayloadType() string { return "order.charged" }

// Effect is a row that consumers write.
type Effect struct {
	bun.BaseModel `bun:"table:effects"`

	ID int64  `bun:"id,pk,autoincrement"`
	Of string `bun:"of"`
}

func createEffects(t testing.TB, db *bun.DB) {
	t.Helper()
	testapp.OK(t, testapp.Second(db.NewCreateTable().Model((*Effect)(nil)).Exec(t.Context())))
}

func addEffect(ctx context.Context, db bun.IDB, of string) error {
	_, err := db.NewInsert().Model(&Effect{Of: of}).Exec(ctx)
	return err
}

func effects(t testing.TB, db bun.IDB) (of []string) {
	t.Helper()
	testapp.OK(t, db.NewSelect().Model((*Effect)(nil)).Column("of").Order("id").Scan(context.Background(), &of))
	return of
}

// recorder is a testing.TB that notes the failure it is told of.
type recorder struct {
	testing.TB
	failure string
	failed  atomic.Bool
}

func (r *recorder) Helper()           {}
func (r *recorder) Output() io.Writer { return io.Discard }
func (r *recorder) Failed() bool      { return r.failed.Load() }

func (r *recorder) FailNow() {
	r.failed.Store(true)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	r.FailNow()
}

// failureOf runs fn and returns how it failed, "" if it did not.
func failureOf(t *testing.T, fn func(t testing.TB)) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(r)
	}()
	<-done
	return r
}

// wantFailure checks that fn fails the test with a message that has all the parts.
func wantFailure(t *testing.T, fn func(t testing.TB), parts ...string) {
	t.Helper()
	got := failureOf(t, fn).failure
	if t.Skipped() { // by testdb, in a run that is about other databases
		t.SkipNow()
	}
	for _, part := range parts {
		if got == "" || !strings.Contains(got, part) {
			t.Errorf("failure: got %q, want it to say %q", got, part)
		}
	}
}

// equal reports a difference between lists.
func equal[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// consumers of deliveries, in order.
func consumersOf(deliveries []bustest.Delivery) (names []string) {
	for _, d := range deliveries {
		names = append(names, d.Message.Consumer)
	}
	return names
}

// noting is a consumer that notes the ids it gets.
func noting(name string, ids *[]string, options ...bus.ConsumerOption) bus.Consumer {
	return bus.Consume(name, func(_ context.Context, o OrderPlaced) error {
		*ids = append(*ids, o.ID)
		return nil
	}, options...)
}

func sqlite(t testing.TB) *bun.DB { return testdb.SQLite(t) }

func start() time.Time { return time.Date(2031, 2, 3, 4, 0, 0, 0, time.UTC) }
