//go:build unix

package chaos_test

import (
	"context"
	"strings"
	"syscall"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// Bar 2, a failover: the primary of two PostgreSQL servers is killed under load, its
// standby promoted, and workers find it by a DSN with both of them. Where commits wait
// for the standby nothing is lost. Where they do not, what the primary had not sent is
// gone with it, and what runs from then on is what the survivor has.

func barFailover(b *bar) {
	for range pick(b, 1, 1, 5) {
		synchronousFailover(b)
		asynchronousFailover(b)
	}
}

// pair is a primary, and a standby that follows it.
type pair struct {
	primary, standby *chaos.Server
	dsn              string // of whichever takes writes
}

func newPair(b *bar, synchronous bool) pair {
	b.Helper()
	primary := testapp.Must[*chaos.Server](b)(chaos.NewServer(serverDir(b)))
	standby, err := primary.Standby(serverDir(b))
	started(b, primary, nil)
	started(b, standby, err)
	dsn := testapp.Must[string](b)(chaos.Either(primary, standby))
	db := openDSN(b, primary.DSN())
	state := "async"
	if synchronous {
		// After the copy, which has no such setting: a survivor that waits for a
		// standby it does not have commits nothing.
		b.exec(db, "ALTER SYSTEM SET synchronous_standby_names = '*'")
		b.exec(db, "SELECT pg_reload_conf()")
		state = "sync"
	}
	b.eventually(time.Minute, "the standby follows", func() (follows bool) {
		err := db.NewRaw("SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = ?)",
			state).Scan(b.Context(), &follows)
		if err != nil {
			b.Fatal(err)
		}
		return follows
	})
	return pair{primary: primary, standby: standby, dsn: dsn}
}

// fail kills the primary and promotes the standby. It returns when each was. A sender
// that is stalled does not notice its parent's end, and is killed as well.
func (p pair) fail(b *bar, stalled ...int) (gone, up time.Time) {
	b.Helper()
	gone = time.Now()
	for _, sender := range stalled {
		defer time.AfterFunc(50*time.Millisecond, func() { _ = syscall.Kill(sender, syscall.SIGKILL) }).Stop()
	}
	p.primary.Kill()
	pause(b.between(0, time.Second)) // until somebody notices
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.Context()), time.Minute)
	defer cancel()
	testapp.OK(b, p.standby.Promote(ctx))
	return gone, b.answering(p.dsn)
}

// underLoad is a pair, and a run on it under load.
func underLoad(b *bar, synchronous bool) (p pair, r *run, l *load) {
	p = newPair(b, synchronous)
	config, spec := outages()
	spec.positions = !synchronous
	r = newRun(b, p.dsn, config)
	r.crew(3)
	l = r.load(spec)
	pause(b.between(2*time.Second, 4*time.Second))
	return p, r, l
}

func synchronousFailover(b *bar) {
	p, r, l := underLoad(b, true)
	gone, up := p.fail(b)
	took := r.healed(up)
	logged := r.quiet(gone, time.Now())
	pause(time.Second)
	r.finish(l)
	b.within("healed", took, patience)
	b.figure("failover, synchronous: the survivor took writes after %.1fs, healed %.1fs later (goal ≤ %s); %s",
		up.Sub(gone).Seconds(), took.Seconds(), patience, logged)
}

func asynchronousFailover(b *bar) {
	p, r, l := underLoad(b, false)
	stalled := r.stallStandby()
	pause(b.between(500*time.Millisecond, 1500*time.Millisecond))
	gone, up := p.fail(b, stalled)
	took := r.healed(up)
	logged := r.quiet(gone, time.Now())
	pause(time.Second)
	l.end()
	r.refresh()
	rest := r.eventually(2*time.Minute, "everything is settled", r.settled)
	r.stopAll()
	lost, kept := l.survived(r.received())
	e := r.evidence()
	ran := len(e.Ledger)
	e.Ledger = survived(e, up.Add(r.config.Lease))
	f := chaos.Judge(e)
	if violations := f.Violations(); len(violations) > 0 {
		r.Errorf("violations:\n%s", strings.Join(violations, "\n"))
	}
	r.onlyLogged()
	if lost == 0 {
		b.Error("batches lost with the primary: got none, want some, since its standby was stalled")
	}
	r.nonePoisoned()
	b.within("healed", took, patience)
	b.figure("failover, asynchronous: the survivor took writes after %.1fs, healed %.1fs later (goal ≤ %s); %d confirmed batches lost with the primary, all unsent, %d kept; %d of %d events were of claims lost with it; on the survivor: %v; crashes counted %d, the rest settled in %.1fs; %s",
		up.Sub(gone).Seconds(), took.Seconds(), patience, lost, kept, ran-len(e.Ledger), ran, f, r.crashes, rest.Seconds(), logged)
}

// stallStandby has the primary send nothing more, and returns the process that sent.
func (r *run) stallStandby() (sender int) {
	r.Helper()
	sender = r.count("SELECT pid FROM pg_stat_replication")
	if err := syscall.Kill(sender, syscall.SIGSTOP); err != nil {
		r.Fatalf("stop the sender of the primary's log: %v", err)
	}
	return sender
}

// received is how much of the primary's log the survivor had got, all of which it keeps.
func (r *run) received() (position int64) {
	r.Helper()
	testapp.OK(r, r.db.NewRaw("SELECT (pg_last_wal_replay_lsn() - '0/0')::bigint").Scan(r.ctx, &position))
	return position
}

// survived enters the jobs of a load into the run as the survivor has them. It must have
// every batch whose commit it had received, and none whose commit it had not. It returns
// how many confirmed ones it does not have, and has.
func (l *load) survived(received int64) (lost, kept int) {
	r := l.run
	r.Helper()
	committed, failedOver := l.committed(), false
	for _, b := range l.batches {
		there := committed[b.jobs[0]]
		l.enter(b, there)
		// What was produced on the survivor continues the log from where it ended.
		failedOver = failedOver || !b.confirmed
		switch {
		case !b.confirmed:
		case there:
			kept++
			if !failedOver && b.before >= received {
				r.Errorf("batch %d: got it on the survivor, although it was committed after %d, which is all that was received: %d", b.jobs[0],
					b.before, received)
			}
		default:
			lost++
			if b.after <= received {
				r.Errorf("batch %d: got it lost, although it was committed by %d and the survivor had received %d", b.jobs[0], b.after, received)
			}
		}
	}
	return lost, kept
}

// survived leaves out what was done under claims that the survivor never had: that is
// lost with the primary. Whoever made them learns of it within a lease; after that
// instant nothing is left out.
func survived(e chaos.Evidence, known time.Time) (kept chaos.Ledger) {
	claimed := e.Claimed()
	for _, event := range e.Ledger {
		at, ok := claimed[event.By()]
		if ok && !event.At.Before(at) || event.Kind == chaos.Started && event.At.After(known) {
			kept = append(kept, event)
		}
	}
	return kept
}
