package ops

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Internal: what is applied at once takes a projection, and a lease is renewed every 5 s only.

// silent is a database that does not answer.
type silent struct{}

func (silent) Connect(ctx context.Context) (driver.Conn, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}
func (silent) Driver() driver.Driver { return nil }

// away is a service whose database does not answer.
func away(t *testing.T, c Config) *Service {
	t.Helper()
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	c.DB, c.Registry = bun.NewDB(sql.OpenDB(silent{}), pgdialect.New()), registry
	t.Cleanup(func() { _ = c.DB.Close() })
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestKeepGivesUp: who cannot renew a lease ends what it does once that is over, and whoever is done does not wait
// for a database that does not answer.
func TestKeepGivesUp(t *testing.T) {
	t.Parallel()
	for name, isDone := range map[string]bool{"the lease is over": false, "it is done": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := away(t, Config{})
				w := &work{Runner: &Runner{service: d, owner: "me"}, id: 1, log: d.config.Logger}
				within, end := context.WithCancelCause(t.Context())
				defer end(nil)
				done, kept := make(chan struct{}), make(chan struct{})
				begun := time.Now()
				go func() {
					defer close(kept)
					w.keep(within, end, done)
				}()
				if isDone {
					<-time.After(lease / 2) // in the midst of renewing it
					close(done)
				}
				select {
				case <-kept:
				case <-time.After(time.Hour):
					t.Fatal("it waits for a database that does not answer")
				}
				if why := context.Cause(within); isDone != (why == nil) || !isDone && why != errLost || time.Since(begun) > 2*lease {
					t.Errorf("after %s: got cause %v", time.Since(begun), why)
				}
			})
		})
	}
}
