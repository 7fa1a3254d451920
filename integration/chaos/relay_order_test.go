//go:build unix

package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// Bar 14, order: an event log leaves over a cluster of three, and enters the log of another
// service, while relays and receivers are killed around every step, leaders are killed, and relays
// are stopped in front of an append until their lease has gone to somebody else. Each event is
// there once, on the broker and in the other log, in the order of its stream, and nothing is
// appended that is stale.

const logShards = 32 // less than the 50 atomic batches that a stream of JetStream takes at once

// loggers are two services with a log each, of which the one goes into the other.
type loggers struct {
	*relayed
	log     *eventlog.Log
	other   *eventlog.Log // of the service that it enters
	streams int
}

func newLoggers(b *bar, streams int) *loggers {
	b.Helper()
	r := newBroker(b, 3, chaos.LogStream)
	config := chaos.RelayConfig{Server: r.servers.URL(), Log: chaos.LogConfig{Shards: logShards}}
	r.from = newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Relay: config})
	config.Log = chaos.LogConfig{Enters: true}
	r.to = newRun(b, testdb.PostgresDSN(b), chaos.WorkerConfig{Relay: config})
	return &loggers{relayed: r, log: r.from.newLog(), other: r.to.newLog(), streams: streams}
}

// newLog is the log in the run's database.
func (r *run) newLog() *eventlog.Log {
	r.Helper()
	log := testapp.Must[*eventlog.Log](r)(eventlog.NewLog(r.registry, r.producer, eventlog.LogConfig{}))
	return log
}

func barRelayOrder(b *bar) {
	l := newLoggers(b, pick(b, 100, 1000, 1000))
	events, kills, leaders, zombies := pick(b, 5000, 40_000, 200_000), pick(b, 5, 10, 20), pick(b, 0, 2, 5), pick(b, 1, 2, 2)
	begun := time.Now()
	l.killInTurn(kills, leaders, events*3/4)
	var stale tried
	for range zombies {
		stale = stale.and(l.zombie(events / 4 / zombies))
	}
	for len(l.from.jobs) < events { // so much at a time that whoever is late is stuck, and not slow
		l.append(min(events-len(l.from.jobs), 10_000))
		l.eventually(2*time.Minute, "the other log has all", l.arrived)
	}
	l.appendToAll()
	last := time.Now()
	l.eventually(2*time.Minute, "the other log has all", l.arrived)
	took := time.Since(last)
	l.from.stopAll()
	l.to.stopAll()
	l.from.onlyLogged()
	l.to.onlyLogged()
	at, in := l.compare()
	if want := zombies * logShards; stale.accepted > 0 || stale.refused < want {
		b.Errorf("stale appends: got %d accepted and %d refused, want none and %d", stale.accepted, stale.refused, want)
	}
	b.figure("%d events of %d streams, %d relays and %d receivers killed, %d leaders, %d relays stopped beyond their lease: on the broker %v; in the other log %v; stale appends accepted %d of %d; the last %d arrived in %.1fs, all of it took %.0fs",
		len(l.from.jobs), l.streams, len(l.from.killed), len(l.to.killed), leaders, zombies, at, in, stale.accepted,
		stale.accepted+stale.refused, l.streams, took.Seconds(), time.Since(begun).Seconds())
}

// compare compares what the broker and the other log have with the log.
func (l *loggers) compare() (at, in chaos.Differences) {
	l.Helper()
	log := l.entriesOf(l.from, "SELECT stream, (data::json->>'n')::int AS job FROM events ORDER BY stream, version")
	if len(log) != len(l.from.jobs) {
		l.Errorf("the log: got %d events, want the %d that were committed", len(log), len(l.from.jobs))
	}
	if _, err := l.other.AssignPositions(l.to.ctx, l.to.db); err != nil {
		l.Error(err)
	}
	prefix := len(chaos.LogCategory + "-")
	at = chaos.Compare(log, l.entries(chaos.LogStream))
	in = chaos.Compare(log, l.entriesOf(l.to,
		fmt.Sprintf("SELECT substr(stream, %d) AS stream, (data::json->>'n')::int AS job FROM events ORDER BY position", prefix+1)))
	for where, d := range map[string]chaos.Differences{"the broker": at, "the other log": in} {
		if !d.Kept() {
			l.Errorf("%s has what the log has, once and in the order of its streams: got %v", where, d)
		}
	}
	if parked := l.to.count("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM poisoned_messages)"); parked > 0 {
		l.Errorf("events that could not be taken over: got %d, want none", parked)
	}
	return at, in
}

func (l *loggers) entriesOf(r *run, query string) (entries []chaos.Entry) {
	l.Helper()
	if err := r.db.NewRaw(query).Scan(r.ctx, &entries); err != nil {
		l.Fatalf("%.60s: %v", query, err)
	}
	return entries
}

// arrived tells whether the relay is at the end of the log, and the broker has delivered all.
func (l *loggers) arrived() bool {
	l.Helper()
	if halted := l.from.count("SELECT count(*) FROM event_subscriptions WHERE status = 'halted'"); halted > 0 {
		l.Fatalf("shards of the relay: got %d halted, want none", halted)
	}
	// Positions have no gaps.
	return l.from.count("SELECT count(*) FROM event_subscriptions WHERE position < (SELECT count(*) FROM events)") == 0 && l.delivered()
}

// append commits n more events, from several transactions at a time, some of which end late, or
// are rolled back.
func (l *loggers) append(n int) {
	l.Helper()
	const writers, most = 4, 20
	var all sync.WaitGroup
	for i := range writers {
		source := rand.New(rand.NewPCG(l.Uint64(), uint64(i)))
		all.Go(func() {
			for left := n*(i+1)/writers - n*i/writers; left > 0; {
				rollBack := source.IntN(10) == 0
				writes := l.writes(source.IntN(l.streams), min(left, 1+source.IntN(most)), rollBack)
				if !rollBack {
					left -= len(writes)
				}
				if err := l.commit(source, writes, rollBack); err != nil {
					l.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
}

// appendToAll appends an event to each stream, and so something for each shard.
func (l *loggers) appendToAll() {
	l.Helper()
	testapp.OK(l, l.commit(rand.New(rand.NewPCG(l.Uint64(), 0)), l.writes(0, l.streams, false), false))
}

// writes are events of so many streams. They count as committed, unless they are to be rolled back.
func (l *loggers) writes(first, n int, rollBack bool) (writes []eventlog.Write) {
	jobNumbers.Lock()
	defer jobNumbers.Unlock()
	for i := range min(n, l.streams) {
		job := chaos.Job{N: len(l.from.jobs) + len(l.from.never), Key: fmt.Sprintf("stream-%d", (first+i)%l.streams)}
		if rollBack {
			l.from.never = append(l.from.never, job.N)
		} else {
			l.from.jobs = append(l.from.jobs, job.N)
		}
		writes = append(writes, eventlog.Write{Stream: job.Key, Expected: eventlog.AnyVersion, Events: []bus.Payload{job}})
	}
	return writes
}

func (l *loggers) commit(source *rand.Rand, writes []eventlog.Write, rollBack bool) error {
	tx, err := l.from.db.BeginTx(l.from.ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing, once it is committed
	if _, err := l.log.AppendAll(l.from.ctx, tx, writes...); err != nil {
		return err
	}
	pause(time.Duration(source.IntN(5)) * time.Millisecond)
	if rollBack {
		return nil
	}
	return tx.Commit()
}

// killInTurn kills so many relays and receivers, in turn, while so many events are appended, each as
// soon as it gets to its point, and leaders in between.
func (l *loggers) killInTurn(times, leaders, events int) {
	l.Helper()
	sides := [2]*run{l.from, l.to}
	points := [2][]chaos.Point{chaos.SenderPoints(), chaos.ReceiverPoints()}
	var turns [2]int
	start := func(i int) {
		config := sides[i].config
		config.Relay.Hold, config.Relay.After = points[i][turns[i]%len(points[i])], l.IntN(3)
		turns[i]++
		sides[i].startAs(0, config)
	}
	kill := func(i int) {
		sides[i].kill(0)
		// The dead do nothing, so there is no need to wait for the end of their lease.
		l.from.exec("UPDATE event_subscriptions SET leased_until = now() WHERE ? = 0", i)
	}
	start(0)
	start(1)
	for done := range times - 2 {
		victim := done % 2
		l.eventually(2*time.Minute, "a worker gets to its point", func() bool {
			if len(l.from.jobs) < events*(done+1)/times || l.arrived() {
				l.append(max(events/times/10, 50))
			}
			return sides[victim].workers[0].Held()
		})
		kill(victim)
		start(victim)
		if done < leaders {
			node := l.killLeader()
			l.append(events / times / 10)
			l.elected(node)
			testapp.OK(l, node.Start())
		}
	}
	for i := range sides { // whoever comes now is not to be killed
		kill(i)
		sides[i].start(0)
	}
}

// tried is what became of appends that came too late.
type tried struct{ refused, accepted int }

func (t tried) and(o tried) tried { return tried{t.refused + o.refused, t.accepted + o.accepted} }

// zombie stops a relay in front of an append of every shard, until somebody else has appended to
// all of them, and lets it go on. So many events are appended meanwhile.
func (l *loggers) zombie(events int) (t tried) {
	l.Helper()
	l.eventually(2*time.Minute, "nothing is under way", l.arrived)
	l.from.stopAll() // which gives its shards back
	config := l.from.config
	config.Relay.Log.Freezes = true
	z := l.from.startAs(0, config)
	l.append(events / 2)
	l.appendToAll()
	stale := func(kind chaos.EventKind) (n int) {
		for _, e := range l.from.ledger() {
			if e.Worker == z.Name() && e.Consumer == chaos.Stale && e.Kind == kind {
				n++
			}
		}
		return n
	}
	l.eventually(time.Minute, "an append of each shard is on its way", func() bool { return stale(chaos.Started) == logShards })
	z.Signal(syscall.SIGSTOP)
	l.from.exec("CREATE TABLE stopped AS SELECT shard, owner, position FROM event_subscriptions")
	defer l.from.exec("DROP TABLE stopped")
	l.from.start(1)
	l.append(events - events/2)
	l.appendToAll() // whatever the other has moved on already
	l.eventually(time.Minute, "each shard has gone on without it", func() bool {
		return l.from.count("SELECT count(*) FROM event_subscriptions n JOIN stopped s USING (shard) WHERE n.owner <> s.owner AND n.position > s.position") == logShards
	})
	testapp.OK(l, z.Thaw())
	z.Signal(syscall.SIGCONT)
	l.eventually(time.Minute, "the late appends are answered", func() bool { return stale(chaos.Finished)+stale(chaos.Failed) == logShards })
	l.eventually(time.Minute, "nothing is under way", l.arrived)
	return tried{refused: stale(chaos.Failed), accepted: stale(chaos.Finished)}
}
