//go:build unix

package chaos_test

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// Bar 10: during a deploy an old binary and a new one, which knows more consumers,
// work on the same tables. Messages that the old one does not know cost nothing and
// are not touched by it.

func barDeploy(b *bar) {
	// On PostgreSQL xmax says whether a row was written or locked after its insert, also if it
	// looks the same.
	isTouched := "(attempts > 0 OR crashes > 0 OR id IN (" + b.claimed() + ")" + of(b, " OR xmax <> 0)", ")")
	r := newRun(b, b.dsn(), chaos.WorkerConfig{Plain: []string{"old", "new"}, Tx: []string{"old-tx", "new-tx"}})
	before := r.config
	before.Plain, before.Tx = []string{"old"}, []string{"old-tx"}
	old := map[string]bool{r.startAs(0, before).Name(): true, r.startAs(1, before).Name(): true}
	l := r.load(loadSpec{batch: 10, every: 50 * time.Millisecond, low: time.Millisecond, high: 20 * time.Millisecond})

	// The producer is new already, and nobody knows half of what it produces.
	pause(pick(b, 2*time.Second, 5*time.Second, 15*time.Second))
	waiting := r.count("SELECT count(*) FROM consumer_messages WHERE consumer_type LIKE 'new%'")
	touched := r.count("SELECT count(*) FROM consumer_messages WHERE consumer_type LIKE 'new%' AND " + isTouched)
	if touched > 0 || waiting < pick(b, 100, 500, 2500) {
		b.Errorf("messages that only the new binary knows: got %d touched of %d, want none of some hundreds and more", touched, waiting)
	}
	together := pick(b, 5*time.Second, 15*time.Second, time.Minute)
	arrived := time.Now()
	r.start(2)
	pause(together)
	l.end()
	r.eventually(time.Minute, "everything is settled", r.settled)
	r.stopAll()
	doubtful, _ := l.resolve()
	f := r.judge()
	first := time.Hour
	for _, e := range r.ledger() {
		isNew := e.Consumer == "new" || e.Consumer == "new-tx"
		if isNew && old[e.Worker] {
			b.Fatalf("%+v: got a run on the old binary, want none", e)
		}
		if isNew && e.Kind == chaos.Started {
			first = min(first, e.At.Sub(arrived))
			if e.Attempt > 1 || e.Crashes > 0 {
				b.Fatalf("%+v: got an attempt or a crash, want none", e)
			}
		}
	}
	if touches := r.touches(old, "new", "new-tx"); touches > 0 {
		b.Errorf("messages that only the new binary knows: got %d that the old one claimed or wrote, want none", touches)
	}
	b.within("the new binary picks up what waited", first, 5*time.Second)
	if poisoned := r.count("SELECT count(*) FROM poisoned_messages"); poisoned > 0 || f.Duplicates > 0 || doubtful > 0 {
		b.Errorf("got %d poisoned, %d duplicates and %d produces refused, want none", poisoned, f.Duplicates, doubtful)
	}
	b.figure("2 old workers, then 1 new one beside them for %s, %d jobs x 4 consumers: %d unknown messages of which %d touched, attempts and crashes 0, the new one began after %.1fs (goal ≤ 5s): %v",
		together, len(r.jobs), waiting, touched, first.Seconds(), f)
}

// touches counts what the workers did to messages of the consumers, as the database
// saw it: whatever it was, and whoever has them since.
func (r *run) touches(workers map[string]bool, consumers ...string) (n int) {
	r.Helper()
	changes, messages := r.history()
	for _, c := range changes {
		if workers[c.Session] && slices.ContainsFunc(c.Messages,
			func(id int64) bool { return slices.Contains(consumers, messages[id].Consumer) }) {
			n++
		}
	}
	return n
}
