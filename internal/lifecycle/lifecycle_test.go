package lifecycle_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/heartbeat"
	"github.com/asyncmonolith/asyncmonolith-go/internal/lifecycle"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// away is a database that refuses connections.
type away struct{}

func (away) Connect(context.Context) (driver.Conn, error) { return nil, syscall.ECONNREFUSED }
func (away) Driver() driver.Driver                        { return nil }

func config(t *testing.T, check func(context.Context) error) lifecycle.Config {
	t.Helper()
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	db := bun.NewDB(sql.OpenDB(away{}), pgdialect.New())
	t.Cleanup(func() { _ = db.Close() })
	s, err := store.For(db.Dialect().Name(), registry.Tables())
	if err != nil {
		t.Fatal(err)
	}
	return lifecycle.Config{
		Package: "p", Check: check, StartTimeout: time.Minute,
		Heartbeat: heartbeat.Config{
			Store: s, DB: db, Registry: registry, Doing: func() heartbeat.State { return heartbeat.State{} }, Logger: slog.New(slog.DiscardHandler),
		},
	}
}

func TestASecondRunIsRefused(t *testing.T) {
	t.Parallel()
	var run lifecycle.Run
	c := config(t, nil)
	var second error
	work := func(ctx context.Context) {
		second = run.Do(ctx, c, func(context.Context) {})
	}
	for range 2 { // it may run again
		if err := run.Do(t.Context(), c, work); err != nil {
			t.Error(err)
		}
		if !errors.Is(second, bus.ErrRunning) {
			t.Errorf("second: got %v, want ErrRunning", second)
		}
	}
}

func TestARunServesOnceItsCheckHasSucceeded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var run lifecycle.Run
		begun := time.Now()
		c := config(t, func(context.Context) error {
			if run.Serving() {
				t.Error("it serves during its check")
			}
			if time.Since(begun) < 10*time.Second {
				return syscall.ECONNREFUSED
			}
			return nil
		})
		worked := false
		err := run.Do(t.Context(), c, func(context.Context) { worked = run.Serving() })
		if err != nil || !worked || run.Serving() {
			t.Errorf("got %v, served during its work: %t, and after it: %t, want nil, true and false", err, worked, run.Serving())
		}
	})
}

func TestARunEndsWithAFailedCheck(t *testing.T) {
	t.Parallel()
	wrong := errors.New("wrong")
	for _, test := range []struct {
		name  string
		ended bool // its context has ended
		want  error
	}{{"running", false, wrong}, {"stopped", true, nil}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var run lifecycle.Run
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			err := run.Do(ctx, config(t, func(context.Context) error {
				if test.ended {
					cancel()
				}
				return wrong
			}), func(context.Context) { t.Error("it works") })
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}
