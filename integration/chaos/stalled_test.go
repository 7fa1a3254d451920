//go:build unix

package chaos_test

import (
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestABacklogGoesOnAfterABlackHole cuts the only process off in the middle of a backlog,
// without a word: looks and claims time out, and what they have not seen must be found
// again at once when answers come.
func TestABacklogGoesOnAfterABlackHole(t *testing.T) {
	t.Parallel()
	const backlog, stalled, patience = 4000, 15 * time.Second, 20 * time.Second
	// The lease and the poll interval are the defaults.
	r := newRun(&bar{T: t}, testdb.DirectDSN(t), chaos.WorkerConfig{Plain: []string{"one"}, Lease: 30 * time.Second, Poll: time.Second})
	proxy, through := newProxy(r.bar, r.dsn)
	r.config.DSN = through
	r.produce(backlog, func() time.Duration { return 200 * time.Millisecond })
	r.start(0)
	ran := func() int { return len(r.ledger().Count(chaos.Finished)) }
	r.eventually(time.Minute, "the backlog begins", func() bool { return ran() > 200 })
	proxy.Stall(true)
	pause(stalled)
	before := ran()
	proxy.Stall(false)
	// What was claimed before may still run; no more than that is in flight.
	r.eventually(patience, "the backlog goes on", func() bool { return ran() > before+1000 || ran() >= backlog })
	r.stopAll()
}
