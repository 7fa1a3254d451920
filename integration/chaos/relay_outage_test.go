//go:build unix

package chaos_test

import (
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 14, outage: the broker goes away while much waits. Nothing is written to what waits, nobody
// says much of it, and other consumers work as before. Once the broker is back all is published.

const beside = "beside" // the consumer that has nothing to do with the broker

func barRelayOutage(b *bar) {
	backlog, lasts := pick(b, 20_000, 100_000, 3_000_000), pick(b, 4*time.Second, time.Minute, 10*time.Minute)
	r := newBroker(b, 1, chaos.RelayStream)
	r.sender(testdb.PostgresDSN(b), beside)
	r.from.config.Poll = time.Second // the default, of which the processor time is to be
	r.from.start(0)
	r.from.start(1)
	none := func() time.Duration { return 0 }
	r.from.produce(2000, none)
	b.eventually(time.Minute, "the relays publish", func() bool { return r.published() > 0 })
	b.eventually(time.Minute, "everything is settled", r.from.settled)
	alone := r.throughput()
	had := r.published()
	r.from.produce(2000, none)
	b.eventually(time.Minute, "some of these are published", func() bool { return r.published() > had })
	killed := time.Now()
	testapp.OK(b, r.servers.Kill())
	gone := time.Now()
	crowd := r.crowd(publishes, backlog)
	b.eventually(time.Minute, "all claims have been given back", func() bool {
		return r.from.count("SELECT (SELECT count(*) FROM message_claims) + (SELECT count(*) FROM consumer_messages WHERE consumer_type = ?)",
			beside) == 0
	})
	pause(time.Second) // what the broker had is settled, too
	r.from.exec("CREATE TABLE before AS SELECT id, ctid::text AS place, xmin::text AS writer FROM consumer_messages")
	used, noCPU := r.from.cpu()
	begun := time.Now()
	pause(lasts)
	lasted := time.Since(begun)
	share := r.from.busiest(used, lasted)
	// Each probe is a line of the log, too, at a level that the workers do not write.
	probes := failed(r.from.ledger(), begun, begun.Add(lasted))
	logged := r.from.quiet(gone, time.Now())
	crowded := r.throughput()
	r.nothingWritten()
	r.quietly(share, noCPU, probes, lasted)
	waited, up := r.from.count("SELECT count(*) FROM before"), time.Now()
	testapp.OK(b, r.servers.Start())
	had = r.published()
	b.eventually(time.Minute, "something is published", func() bool { return r.published() > had })
	first := time.Since(up)
	b.within("the first is published", first, 36*time.Second)
	drained := b.eventually(pick(b, 4*time.Minute, 4*time.Minute, 15*time.Minute), "everything is published",
		r.from.settled) // whether the broker has all is seen below
	again := r.throughput()
	if limit := pick(b, 0.5, 0.5, 0.9); crowded < limit*min(alone, again) { // the machine may have had less to do before
		b.Errorf("another consumer beside what waits: got %.0f messages a second, want %.2f of the %.0f before and %.0f after that",
			crowded, limit, alone, again)
	}
	r.from.stopAll()
	f := r.from.judge()
	// What was in flight when the broker went away, or has had no answer since it is back.
	inFlight := inDoubt(r.from.ledger(), killed, gone) + failed(r.from.ledger(), up, time.Now())
	twice := r.storedAll(len(r.from.jobs)+crowd, inFlight)
	b.figure("%d waited for %.0fs: rows written 0, attempts 0, poisoned 0; %d probes, %.2f %% of a processor, %s; another consumer did %.0f/s, and %.0f/s before and %.0f/s after that; first published %.1fs after %.1fs, the others in %.1fs (%.0f/s); the broker has %d twice, %d were in flight: %v",
		waited, lasted.Seconds(), probes, 100*share, logged, crowded, alone, again, first.Seconds(), up.Sub(gone).Seconds(), drained.Seconds(),
		float64(waited)/drained.Seconds(), twice, inFlight, f)
}

// quietly fails the bar if workers used more of a processor while the broker was away, or tried
// more often, than they may. How much they used is not known everywhere.
func (r *relayed) quietly(share float64, noCPU error, probes int, lasted time.Duration) {
	r.Helper()
	if noCPU != nil {
		r.figure("processor time not measured: %v", noCPU)
	}
	if limit := pick(r.bar, 0.05, 0.02, 0.005); share > limit {
		r.Errorf("processor time of a worker during the outage: got %.1f %%, want at most %.1f %%", 100*share, 100*limit)
	}
	if limit := len(r.from.former) * int(lasted/time.Second); probes == 0 || probes > limit {
		r.Errorf("records that were tried during the outage: got %d, want some, and at most %d, one a second for each worker", probes, limit)
	}
}

// crowd has so many messages of a consumer wait, which are not in the ledger.
func (r *relayed) crowd(consumer string, n int) int {
	r.Helper()
	const chunk, first = 100_000, 1_000_000_000 // beyond the numbers of jobs
	for from := 0; from < n; from += chunk {
		r.from.exec(`INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, created_at, available_after)
			SELECT gen_random_uuid(), ?, ?, json_build_object('n', i, 'do', ?::text)::text, now(), now() FROM generate_series(?::int, ?::int) i`,
			consumer, chaos.Job{}.PayloadType(), string(chaos.Crowd), first+from, first+min(from+chunk, n)-1)
	}
	return n
}

// throughput is how many messages a second a consumer does that has nothing to do with the broker,
// at its best.
func (r *relayed) throughput() (best float64) {
	r.Helper()
	n := pick(r.bar, 5000, 20_000, 50_000)
	for range 3 {
		r.crowd(beside, n)
		took := r.eventually(time.Minute, "the crowd of another consumer is done", func() bool {
			return r.from.count("SELECT count(*) FROM (SELECT FROM consumer_messages WHERE consumer_type = ? LIMIT 1) one", beside) == 0
		})
		best = max(best, float64(n)/took.Seconds())
	}
	return best
}

// nothingWritten fails the bar if anything was written to what waits.
func (r *relayed) nothingWritten() {
	r.Helper()
	written := r.from.count("SELECT count(*) FROM before b FULL JOIN consumer_messages m ON m.id = b.id WHERE (m.ctid::text, m.xmin::text) IS DISTINCT FROM (b.place, b.writer)")
	charged := r.from.count("SELECT count(*) FROM consumer_messages WHERE attempts > 0 OR crashes > 0")
	poisoned := r.from.count("SELECT count(*) FROM poisoned_messages")
	if written+charged+poisoned > 0 {
		r.Errorf("during the outage: got %d rows written, %d with attempts or crashes, %d poisoned, want none", written, charged, poisoned)
	}
}

// failed is how many runs failed in a span of time.
func failed(ledger chaos.Ledger, from, to time.Time) (n int) {
	for _, e := range ledger {
		if e.Kind == chaos.Failed && !e.At.Before(from) && e.At.Before(to) {
			n++
		}
	}
	return n
}
