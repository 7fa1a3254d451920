//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// groupEnds is the number of the job at the end of the first group; those of members are smaller.
const groupEnds = 1_000_000

// Bar 18: workers are killed while they run members of groups and end groups. Each group's job is
// written once, after the effects of all members.
func barGroups(b *bar) {
	const crew, members = 3, 3
	groups, times := pick(b, 100, 1000, 2000), pick(b, 10, 60, 200)
	r := newRun(b, b.dsn(), chaos.WorkerConfig{Tx: []string{"two"}})
	r.crew(crew)
	begun := time.Now()
	for i := range times {
		for g := groups * i / times; g < groups*(i+1)/times; g++ {
			r.group(g, members, func() time.Duration { return b.between(0, 5*time.Millisecond) })
		}
		pause(b.between(10*time.Millisecond, 80*time.Millisecond))
		victim := r.atWork()
		r.kill(victim)
		r.start(victim)
		b.eventually(time.Minute, "the crew keeps up", func() bool { return r.pending() < 10*crew*members })
	}
	b.eventually(time.Minute, "all groups have ended", func() bool {
		return r.count("SELECT count(*) FROM message_groups") == 0 && r.settled()
	})
	took := time.Since(begun)
	r.stopAll()
	f := r.judgeAfter(true)
	r.nonePoisoned()
	twice := r.count("SELECT count(*) FROM (SELECT job FROM effects WHERE job >= ? GROUP BY job HAVING count(*) > 1) twice", groupEnds)
	ended := r.count("SELECT count(DISTINCT job) FROM effects WHERE job >= ?", groupEnds)
	early := r.count("SELECT count(*) FROM effects e JOIN effects m ON m.job < ? AND m.job / ? = e.job - ? WHERE m.at > e.at",
		groupEnds, members, groupEnds)
	if twice > 0 || ended != groups || early > 0 {
		b.Errorf("groups: got %d ended, %d of them twice, %d members after an end, want %d, none and none", ended, twice, early, groups)
	}
	b.figure("%d kills, %d groups of %d: each ended once, in %.1fs: %v", times, groups, members, took.Seconds(), f)
}

// group produces the members of a group and what waits for them.
func (r *run) group(g, members int, takes func() time.Duration) {
	r.Helper()
	all := outbox.Group(fmt.Sprint("group-", g))
	err := r.producer.RunInTx(r.ctx, r.db, func(ctx context.Context, tx bun.Tx) error {
		for i := range members {
			job := chaos.Job{N: g*members + i, Takes: takes()}
			r.jobs = append(r.jobs, job.N)
			if _, err := r.producer.Produce(ctx, tx, job, all); err != nil {
				return err
			}
		}
		r.jobs = append(r.jobs, groupEnds+g)
		return r.producer.WhenDone(ctx, tx, all, chaos.Job{N: groupEnds + g})
	})
	if err != nil {
		r.Fatalf("produce a group: %v", err)
	}
}
