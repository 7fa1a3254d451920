package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestToWaitForARetiredVersionIsAnError has an old process wait for a projection
// whose next version is in use.
func TestToWaitForARetiredVersionIsAnError(t *testing.T) {
	t.Parallel()
	l := newLedger(t, testdb.SQLite(t))
	old, next := l.runner(balances()), l.runner(balances2())
	l.fill(2, 4)
	l.catchUp(old)
	l.catchUp(next)
	testapp.OK(t, next.Promote(l.ctx, "balances", 2, 0))
	ctx, cancel := context.WithTimeout(l.ctx, 2*time.Minute)
	defer cancel()
	if err := old.WaitFor(ctx, "balances", l.append("account-1", eventlog.AnyVersion, moved{1})); !errors.Is(err, projection.ErrRetired) {
		t.Errorf("wait for a retired version: got %v, want ErrRetired", err)
	}
}
