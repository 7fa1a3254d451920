//go:build unix

package chaos_test

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// Bar 17: workers produce what they run themselves, so that most messages are claimed by the
// transaction that writes them, and are killed. What is committed runs, what is rolled back does not,
// and only what was in flight runs twice.
func barHandOff(b *bar) {
	const crew, each = 3, 100_000
	const lease = 5 * time.Second // longer than a busy machine delays a heartbeat: nothing but a kill ends a claim
	times := pick(b, 3, 15, 40)
	r := newRun(b, b.dsn(), chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two"}, Lease: lease})
	r.exec("CREATE TABLE produced (job int PRIMARY KEY)")
	config := r.config
	start := func(i int) {
		config.Produce = chaos.ProduceConfig{Loops: 4, First: each * (len(r.former) + 1)}
		r.startAs(i, config)
	}
	for i := range crew {
		start(i)
	}
	handedOff := func() int {
		return r.count("SELECT COALESCE(sum(cardinality(messages)), 0) FROM history WHERE kind = 'claimed' AND claim < 0")
	}
	flows := func() { // not while crashed messages wait, and there is a backlog
		before := handedOff()
		b.eventually(time.Minute, "messages are handed off", func() bool { return handedOff() >= before+100 })
	}
	for range times {
		flows()
		for range crew - 1 {
			victim := r.atWork()
			r.kill(victim)
			start(victim)
		}
	}
	flows()
	r.stopAll() // which produce until then
	begun := time.Now()
	r.start(0)
	b.eventually(time.Minute, "everything is settled", r.settled)
	took := time.Since(begun)
	r.stopAll()
	if err := r.db.NewRaw("SELECT job FROM produced").Scan(r.ctx, &r.jobs); err != nil {
		b.Fatal(err)
	}
	f := r.judgeAfter(true)
	_, running := r.evidence().Strikes(r.killed)
	inFlight := 0
	for _, n := range running {
		inFlight += n
	}
	if f.Duplicates > inFlight {
		b.Errorf("duplicates: got %d, want at most the %d in flight at the kills", f.Duplicates, inFlight)
	}
	all := len(r.jobs) * (len(r.config.Plain) + len(r.config.Tx))
	r.nonePoisoned()
	b.figure("%d kills, %d messages, %d of them handed off: %v; in flight at kills %d, the rest settled in %.1fs",
		times*(crew-1), all, handedOff(), f, inFlight, took.Seconds())
}
