package console_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestAnHourUnseen: a console at which nobody looks any more asks the database for nothing.
func TestAnHourUnseen(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, _ context.Context, newApp func(...bus.Consumer) *testapp.App) {
		a := newApp()
		var statements atomic.Int64
		s := newSite(t, a.DB.WithQueryHook(testapp.QueryHook(func(context.Context, string) { statements.Add(1) })), ops.Administrator)
		for range 2 {
			for _, path := range []string{"", "messages", "find", "poisoned", "suspects", "schedules", "processes", "projections",
				"operations", "doctor"} {
				s.must(path)
			}
			<-time.After(5 * time.Second) // so that what is kept is too old, and is made anew
		}
		asked := statements.Load()
		if asked == 0 {
			t.Fatal("those who looked asked for nothing")
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if more := statements.Load() - asked; more != 0 {
			t.Errorf("got %d statements in an hour, want 0", more)
		}
	})
}
