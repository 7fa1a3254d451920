package eventlog_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestAReplayKeepsItsRate writes few messages a second, from the first one on.
func TestAReplayKeepsItsRate(t *testing.T) {
	t.Parallel()
	a := newApp(t, testdb.SQLite(t), bus.Consume("c", func(context.Context, moved) error { return nil }))
	events := make([]bus.Payload, 50)
	for i := range events {
		events[i] = moved{i}
	}
	a.append("account-1", eventlog.AnyVersion, events...)
	a.exec("DELETE FROM consumer_messages")
	ctx, cancel := context.WithTimeout(a.ctx, 4*time.Second)
	defer cancel()
	n, err := a.log.Replay(ctx, a.db, eventlog.Replay{Name: "slow", Consumer: "c", Rate: 5})
	if !errors.Is(err, context.DeadlineExceeded) || n > 25 || n == 0 {
		t.Errorf("replayed in 4 s at a rate of 5: got %d and %v, want 25 at most", n, err)
	}
}
