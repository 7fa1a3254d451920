//go:build unix

package chaos_test

import (
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// Bar 1: workers are killed under load. Nothing is lost, nothing runs twice that
// was not in flight, and no innocent is poisoned.

func barKills(b *bar) {
	if b.mariadb || b.tier == short { // with all kinds of consumers at once
		config := chaos.WorkerConfig{Plain: []string{"one"}, Tx: []string{"two", "grouped"}, Grouped: []string{"grouped"}}
		kills(b, b.dsn(), config, pick(b, 600, 2000, 2000), pick(b, 4, 20, 20))
		return
	}
	kills(b, b.dsn(), chaos.WorkerConfig{Plain: []string{"one", "two"}}, pick(b, 1500, 20_000, 20_000), pick(b, 4, 30, 30))
}

func barKillsTx(b *bar) {
	kills(b, b.dsn(), chaos.WorkerConfig{Tx: []string{"one", "grouped"}, Grouped: []string{"grouped"}}, pick(b, 600, 20_000, 20_000),
		pick(b, 4, 30, 30))
}

func kills(b *bar, dsn string, config chaos.WorkerConfig, messages, times int) *run {
	const crew = 3
	config.Options = make(map[string]chaos.Options)
	for _, consumer := range slices.Concat(config.Plain, config.Tx) {
		config.Options[consumer] = chaos.Options{Keep: true}
	}
	r := newRun(b, dsn, config)
	takes := func() time.Duration { return b.between(5*time.Millisecond, 40*time.Millisecond) }
	if len(config.Tx) > 0 { // 8 at a time
		takes = func() time.Duration { return b.between(time.Millisecond, 5*time.Millisecond) }
	}
	r.crew(crew)
	var killed time.Time
	for i := range times {
		b.eventually(time.Minute, "the crew keeps up", func() bool { return r.pending() < messages/times })
		r.produce(messages*(i+1)/times-messages*i/times, takes)
		pause(b.between(10*time.Millisecond, 80*time.Millisecond))
		victim := r.atWork()
		r.kill(victim)
		killed = time.Now()
		r.start(victim)
	}
	backlog := r.pending()
	limit := r.config.Lease + pick(b, 20*time.Second, 5*time.Second, 5*time.Second) // make test runs it beside everything else
	b.eventually(time.Minute, "everything is settled", r.settled)
	took := time.Since(killed)
	r.stopAll()
	f := r.judgeAfter(true)
	_, running := r.evidence().Strikes(r.killed)
	struck, inFlight := len(running), 0
	for _, n := range running {
		inFlight += n
	}
	if f.Duplicates > inFlight {
		b.Errorf("duplicates: got %d, want at most the %d in flight at the kills", f.Duplicates, inFlight)
	}
	if struck < max(times/3, 1) {
		b.Errorf("kills that hit a worker at work: got %d of %d, want a third of them or more", struck, times)
	}
	if took > limit {
		b.Errorf("settled %s after the last kill, want at most %s", took, limit)
	}
	b.figure("%d kills, %d of them of workers at work, %d messages: %v; in flight at kills %d, %d waiting at the last kill settled in %.1fs (goal ≤ %s)",
		times, struck, len(r.jobs)*(len(r.config.Plain)+len(r.config.Tx)), f, inFlight, backlog, took.Seconds(), limit)
	r.shared()
	r.keepsEach()
	return r
}

// keepsEach fails the bar unless each consumer has kept each job once, as the table of effects has it.
func (r *run) keepsEach() {
	r.Helper()
	for _, consumer := range slices.Concat(r.config.Plain, r.config.Tx) {
		rows := r.count("SELECT count(*) FROM consumed_messages WHERE consumer_type = ?", consumer)
		messages := r.count("SELECT count(DISTINCT message_id) FROM consumed_messages WHERE consumer_type = ? AND outcome = 'done'", consumer)
		if rows != len(r.jobs) || messages != len(r.jobs) {
			r.Errorf("consumer %q: kept %d rows of %d messages, want one for each of %d jobs", consumer, rows, messages, len(r.jobs))
		}
		effects := r.count("SELECT count(DISTINCT job) FROM effects WHERE consumer = ?", consumer)
		if slices.Contains(r.config.Tx, consumer) && effects != rows {
			r.Errorf("consumer %q: kept %d rows, want one for each of %d effects", consumer, rows, effects)
		}
	}
}

// shared fails the bar unless consumers that may share transactions did.
func (r *run) shared() {
	r.Helper()
	for _, consumer := range r.config.Grouped {
		transactions := r.count("SELECT count(DISTINCT tx) FROM effects WHERE consumer = ?", consumer)
		effects := r.count("SELECT count(*) FROM effects WHERE consumer = ?", consumer)
		if transactions == effects {
			r.Errorf("consumer %q: got a transaction for each of %d effects, want some to be shared", consumer, effects)
		}
		r.figure("consumer %q: %d effects in %d transactions", consumer, effects, transactions)
	}
}

// atWork picks a worker that holds messages, or, if none does for a while, any.
func (r *run) atWork() int {
	r.Helper()
	for range 50 {
		var names []string
		if err := r.db.NewRaw("SELECT DISTINCT o.worker FROM owners o JOIN message_claims c ON c.owner = o.owner ORDER BY 1").Scan(r.ctx,
			&names); err != nil {
			r.Fatal(err)
		}
		var busy []int
		for i, w := range r.workers { // not those that were killed and whose leases last
			if slices.Contains(names, w.Name()) {
				busy = append(busy, i)
			}
		}
		if len(busy) > 0 {
			return busy[r.IntN(len(busy))]
		}
		pause(10 * time.Millisecond)
	}
	return r.IntN(len(r.workers))
}
