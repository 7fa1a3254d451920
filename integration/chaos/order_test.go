//go:build unix

package chaos_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Bar 15: messages of a key run in order, and never two at once, while workers are killed and
// stopped for longer than a lease, their connections are cut, handlers fail, messages are
// poisoned and requeued, and produces commit late or roll back.

func barOrder(b *bar) {
	const crew = 3
	r := disturbedRun(b, b.dsn(), chaos.WorkerConfig{
		Plain: []string{"parks", "skips", "batched", "free"}, Tx: []string{"tx",
			"grouped"}, Grouped: []string{"grouped"}, Batched: []string{"batched"},
		Ordered: []string{"parks", "skips", "batched", "tx", "grouped"}, Skips: []string{"skips"}, Lease: 2 * time.Second, Handler: 16,
	})
	r.crew(crew)
	lasts := pick(b, 10*time.Second, 30*time.Second, 3*time.Minute)
	stop := time.Now().Add(lasts)
	var producing sync.WaitGroup
	for i := range 3 {
		source := rand.New(rand.NewPCG(b.Uint64(), uint64(i)))
		producing.Go(func() { r.produceInOrder(source, i, stop) })
	}
	if b.mariadb { // there the connections of workers and producers look alike
		r.disturb(stop)
	} else {
		r.disturb(stop, func() {
			r.count("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = current_database() AND application_name LIKE 'worker%' AND random() < 0.3")
		})
	}
	producing.Wait()
	testapp.OK(b, chaos.Lenient(r.dir))
	requeued := r.requeueUntilSettled()
	r.stopAll()
	f := r.judge()
	e := r.evidence()
	turns := e.Turns()
	r.shared()
	if turns < r.kills {
		b.Errorf("keys that went from one worker to another: got %d, want at least %d", turns, r.kills)
	}
	b.figure("%d kills, %d stops of more than a lease, %d messages of %d keys, %d starts, keys went to another worker %d times, %d requeued: %v",
		r.kills, r.stops, len(r.jobs)*6, len(orderKeys()), len(e.Ledger.Count(chaos.Started)), turns, requeued, f)
}

func orderKeys() (keys []string) {
	for i := range 30 {
		keys = append(keys, fmt.Sprintf("key-%02d", i))
	}
	return keys
}

// jobNumbers are given out under a lock, in the order of each key's produces.
var jobNumbers sync.Mutex

// produceInOrder produces jobs of every third key, one transaction after the other for each
// key, some of which commit late or not at all.
func (r *run) produceInOrder(source *rand.Rand, part int, stop time.Time) {
	for time.Now().Before(stop) {
		key := orderKeys()[source.IntN(10)*3+part]
		if source.IntN(3) == 0 { // one has more than the others
			key = orderKeys()[part]
		}
		jobNumbers.Lock()
		first := len(r.jobs) + len(r.never)
		var items []outbox.Item
		rollBack := source.IntN(10) == 0
		for i := range 1 + source.IntN(6) {
			job := chaos.Job{N: first + i, Key: key, Takes: time.Duration(source.IntN(8)) * time.Millisecond}
			switch source.IntN(60) {
			case 0:
				job.Do = chaos.Halt
			case 1, 2, 3:
				job.Do = chaos.Once
			}
			items = append(items, outbox.Item{Payload: job})
			if r.keys[job.N] = key; rollBack {
				r.never = append(r.never, job.N)
				continue
			}
			r.jobs = append(r.jobs, job.N)
			if job.Do == chaos.Halt {
				r.doomed = append(r.doomed, job.N)
			}
		}
		jobNumbers.Unlock()
		if err := r.commitLate(source, items, rollBack); err != nil {
			r.Errorf("produce: %v", err)
			return
		}
		pause(time.Duration(source.IntN(20)) * time.Millisecond)
	}
}

// commitLate produces, and commits or rolls back after a while.
func (r *run) commitLate(source *rand.Rand, items []outbox.Item, rollBack bool) error {
	tx, err := r.db.BeginTx(r.ctx, nil)
	if err != nil {
		return err
	}
	if _, err := r.producer.ProduceMany(r.ctx, tx, items...); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	pause(time.Duration(source.IntN(60)) * time.Millisecond)
	if rollBack {
		return tx.Rollback()
	}
	return tx.Commit()
}

// requeueUntilSettled requeues what is poisoned, over and over, until all is done.
func (r *run) requeueUntilSettled() (requeued int) {
	r.Helper()
	poisons := testapp.Must[*poison.Store](r)(poison.NewStore(r.registry))
	r.eventually(2*time.Minute, "everything is settled", func() bool {
		result, err := poisons.RequeueWhere(r.ctx, r.db, poison.Filter{}, 100)
		if err != nil {
			r.Error(err)
		}
		requeued += result.Requeued
		return r.settled() && r.count("SELECT count(*) FROM poisoned_messages") == 0
	})
	return requeued
}
