//go:build unix

package chaos_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Bar 11: five workers fire ten schedules, all of them every second, and are killed
// all the while. No fire is doubled, and none is missing while anybody is alive.

// Triggers see what is committed and nothing else, and keep it whatever becomes of
// the rows: each fire with its time, and each message with its transaction.
const watchFires = `
CREATE TABLE fires (schedule bigint, fire_at timestamptz, at bigint, tx xid8);
CREATE TABLE sent (job int, tx xid8);
CREATE FUNCTION watch_fires() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO fires VALUES (OLD.id, OLD.available_after, extract(epoch FROM clock_timestamp()) * 1000000, pg_current_xact_id()); RETURN NULL; END $$;
CREATE TRIGGER watch AFTER UPDATE ON scheduled_messages FOR EACH ROW
  WHEN (NEW.available_after IS DISTINCT FROM OLD.available_after) EXECUTE FUNCTION watch_fires();
CREATE FUNCTION watch_sent() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO sent VALUES ((NEW.payload::json->>'n')::int, pg_current_xact_id()); RETURN NULL; END $$;
CREATE TRIGGER watch AFTER INSERT ON consumer_messages FOR EACH ROW EXECUTE FUNCTION watch_sent();`

func barSchedules(b *bar) {
	const crew, schedules = 5, 10
	lasts := pick(b, 15*time.Second, 30*time.Second, 2*time.Minute)
	r := newRun(b, b.dsn(), chaos.WorkerConfig{Plain: []string{"tick"}, Schedules: true})
	r.execEach(of(b, watchFires, mariaFires))
	scheduler, err := schedule.NewScheduler(r.registry, schedule.SchedulerConfig{})
	if err != nil {
		b.Fatal(err)
	}
	ids := make([]int64, schedules)
	for i := range ids {
		if ids[i], err = scheduler.Upsert(r.ctx, r.db, chaos.Job{N: i}, "* * * * * *", "UTC", schedule.Name(fmt.Sprint("tick-", i))); err != nil {
			b.Fatal(err)
		}
	}
	r.crew(crew)
	begun := time.Now()
	kills, down := r.killInTurns(begun.Add(lasts))
	ended := time.Now()
	pause(3 * time.Second)
	r.exec("DELETE FROM scheduled_messages")
	r.eventually(time.Minute, "everything is settled", r.settled)
	r.stopAll()

	doubled := r.count("SELECT count(*) FROM (SELECT 1 FROM fires GROUP BY schedule, fire_at HAVING count(*) > 1) twice")
	if doubled > 0 {
		b.Errorf("fires doubled: got %d, want none", doubled)
	}
	fires, sent := r.count("SELECT count(*) FROM fires"), r.count("SELECT count(*) FROM sent")
	matched := 0
	for i, id := range ids {
		// One transaction fires many schedules, and each of them once.
		matched += r.count("SELECT count(*) FROM fires f WHERE schedule = ? AND (SELECT count(*) FROM sent s WHERE s.tx = f.tx AND s.job = ?) = 1", id, i)
	}
	if fires != matched || sent != fires {
		b.Errorf("got %d fires, %d of them with exactly one message, and %d messages, want as many", fires, matched, sent)
	}
	if ran := len(r.ledger()); ran < 2*sent {
		b.Errorf("events: got %d for %d messages, want a start and an end of each", ran, sent)
	}
	var worst, dead time.Duration
	for _, id := range ids {
		worst = max(worst, r.gap(id, begun, ended, down))
	}
	for _, s := range down {
		dead += s.To.Sub(s.From)
	}
	b.within("gap between fires, besides the time no instance was alive", worst, 2*time.Second)
	b.figure("5 instances, 10 schedules, %.0fs, %d kills, no instance alive for %.1fs in all: %d fires, doubled %d, without exactly one message %d, longest gap %.2fs beyond the time no instance was alive (goal ≤ 2s)",
		ended.Sub(begun).Seconds(), kills, dead.Seconds(), fires, doubled, fires-matched, worst.Seconds())
}

// killInTurns kills workers and starts others, now and then all of them at once,
// and returns when no instance was alive.
func (r *run) killInTurns(until time.Time) (kills int, down []chaos.Span) {
	r.Helper()
	for round := 1; time.Now().Before(until); round++ {
		pause(r.between(200*time.Millisecond, 2*time.Second))
		if round%8 != 0 {
			victim := r.IntN(len(r.workers))
			r.kill(victim)
			r.start(victim)
			kills++
			continue
		}
		for i := range r.workers {
			r.kill(i)
			kills++
		}
		dead := chaos.Span{From: time.Now()}
		pause(r.between(500*time.Millisecond, 3*time.Second))
		r.start(0)
		dead.To = time.Now()
		down = append(down, dead)
		for i := range r.workers[1:] {
			r.start(i + 1)
		}
	}
	return kills, down
}

// gap is the longest time between fires of a schedule, without what no instance was
// alive for.
func (r *run) gap(id int64, from, to time.Time, down []chaos.Span) (worst time.Duration) {
	r.Helper()
	var micros []int64
	testapp.OK(r, r.db.NewRaw("SELECT at FROM fires WHERE schedule = ? ORDER BY at", id).Scan(r.ctx, &micros))
	at := make([]time.Time, len(micros))
	for i, n := range micros {
		at[i] = time.UnixMicro(n)
	}
	at = slices.DeleteFunc(at, func(t time.Time) bool { return t.Before(from) || t.After(to) })
	at = slices.Concat([]time.Time{from}, at, []time.Time{to})
	for i := range at[1:] {
		gap := at[i+1].Sub(at[i])
		for _, s := range down {
			if overlap := earlier(s.To, at[i+1]).Sub(later(s.From, at[i])); overlap > 0 {
				gap -= overlap
			}
		}
		worst = max(worst, gap)
	}
	return worst
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
