//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Bar 9, insert ids: sixteen producers write batches with overlapping insert ids,
// each in an order of its own. No deadlock surfaces, and no id is pending twice.

func barInsertIDs(b *bar) {
	const producers, keys = 16, 2000
	rounds := pick(b, 60, 60, 200) // fewer would not have each insert id
	r := newRun(b, b.dsn(), chaos.WorkerConfig{Plain: []string{"one", "two"}})
	begun := time.Now()
	sent, enqueued := r.overlap(r.db, producers, keys, true, func(round int) bool { return round < rounds })
	took := time.Since(begun)
	unique := keys // with so many payloads each has been sent
	if sent < 20*keys {
		b.Fatalf("payloads: got %d, want 20 for each of the %d insert ids, so that each is among them", sent, keys)
	}
	rows := r.pending()
	if want := 2 * unique; rows != want || int64(rows) != enqueued {
		b.Errorf("rows: got %d for %d insert ids and receipts of %d, want %d each", rows, unique, enqueued, want)
	}
	if wrong := r.count("SELECT count(*) FROM (SELECT 1 FROM consumer_messages GROUP BY insert_id, consumer_type HAVING count(*) > 1) twice"); wrong > 0 {
		b.Errorf("insert ids pending twice: got %d, want none", wrong)
	}
	b.figure("%d producers, %d payloads with %d insert ids in %.1fs: errors 0, %d rows for 2 consumers, as the receipts say",
		producers, sent, unique, took.Seconds(), rows)

	// Again, while workers take the messages away.
	r.crew(2)
	until := time.Now().Add(pick(b, 2*time.Second, 8*time.Second, 30*time.Second))
	again, enqueuedAgain := r.overlap(r.db, producers, keys, true, func(int) bool { return time.Now().Before(until) })
	r.eventually(time.Minute, "everything is settled", r.settled)
	r.stopAll()
	for key := range keys {
		r.jobs = append(r.jobs, key)
	}
	r.judge()
	var finished, recovered int64
	for _, e := range r.ledger() {
		switch {
		case e.Kind == chaos.Finished:
			finished++
		case e.Kind == chaos.Started && e.Crashes > 0: // its lease ran out, on a machine that stood still
			recovered++
		}
	}
	// What was recovered may have run to its end before.
	if enqueued += enqueuedAgain; finished < enqueued || finished > enqueued+recovered {
		b.Errorf("runs: got %d, want the %d that receipts say were enqueued, and at most %d more of leases that ran out", finished,
			enqueued, recovered)
	}
	b.figure("the same with 2 workers: %d payloads, errors 0, %d runs for receipts of %d, of leases that ran out at most %d; conflicts of the users' own transactions, repeated by them: %d", again, finished, enqueued, recovered, r.repeated.Load())
}

// overlap has producers write batches of random insert ids, directly or, if that is
// allowed, in transactions of their own, and returns how many payloads that were and how many
// rows the receipts count. Every error fails the bar.
func (r *run) overlap(db *bun.DB, producers, keys int, inTx bool, more func(round int) bool) (sent, enqueued int64) {
	r.Helper()
	var wg sync.WaitGroup
	var payloads, rows atomic.Int64
	for range producers {
		random := rand.New(rand.NewPCG(r.Uint64(), r.Uint64()))
		wg.Go(func() {
			for round := 0; more(round); round++ {
				items := shuffled(random, keys)
				receipts, err := r.produceBatch(db, items, inTx && random.IntN(2) == 0)
				if err != nil {
					r.Errorf("produce: got %v, want no error to surface", err)
					return
				}
				payloads.Add(int64(len(items)))
				for _, receipt := range receipts {
					rows.Add(int64(receipt.Enqueued))
				}
			}
		})
	}
	wg.Wait()
	return payloads.Load(), rows.Load()
}

// shuffled is a batch of distinct insert ids in random order. Some take more than
// one statement.
func shuffled(random *rand.Rand, keys int) []outbox.Item {
	n := 10 + random.IntN(190)
	if random.IntN(20) == 0 {
		n = min(keys, 1200)
	}
	items := make([]outbox.Item, n)
	for i, key := range random.Perm(keys)[:n] {
		items[i] = outbox.Item{Payload: chaos.Job{N: key}, Options: []outbox.Option{outbox.InsertID(fmt.Sprint("key-", key))}}
	}
	return items
}

func (r *run) produceBatch(db *bun.DB, items []outbox.Item, inTx bool) (receipts []outbox.Receipt, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, 30*time.Second)
	defer cancel()
	if !inTx {
		return r.producer.ProduceMany(ctx, db, items...)
	}
	for {
		err = r.producer.RunInTx(ctx, db, func(ctx context.Context, tx bun.Tx) error {
			receipts, err = r.producer.ProduceMany(ctx, tx, items...)
			return err
		})
		if !r.mariadb || !dberr.IsConflict(err) {
			return receipts, err
		}
		r.repeated.Add(1) // there they are the user's to repeat
	}
}
