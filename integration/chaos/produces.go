//go:build unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// ProduceConfig has a worker produce what its own consumers run. A transaction writes the numbers of
// the jobs that it commits to the table produced.
type ProduceConfig struct {
	Loops int // how many produce at once; zero for none
	First int // the number of its first job
}

// errUndo rolls a transaction back.
var errUndo = errors.New("rolled back, as told")

// produces produces jobs until ctx ends.
type produces struct {
	db       *bun.DB
	producer *outbox.Producer
	next     atomic.Int64
}

func (config WorkerConfig) produces(db *bun.DB, producer *outbox.Producer) func(ctx context.Context) error {
	p := &produces{db: db, producer: producer}
	p.next.Store(int64(config.Produce.First))
	return func(ctx context.Context) error {
		var loops sync.WaitGroup
		for range config.Produce.Loops {
			loops.Go(func() {
				for how := 0; ctx.Err() == nil; how++ {
					_ = p.once(ctx, how) // what has become of it, the tables show
					pause(time.Duration(rand.Int64N(int64(8 * time.Millisecond))))
				}
			})
		}
		loops.Wait()
		return nil
	}
}

// once produces in one transaction.
func (p *produces) once(ctx context.Context, how int) error {
	return p.producer.RunInTx(ctx, p.db, func(ctx context.Context, tx bun.Tx) error {
		sql := func(statement string) error { _, err := tx.ExecContext(ctx, statement); return err }
		switch how % 8 {
		case 0: // many in one call
			return p.produce(ctx, tx, true, 3)
		case 1:
			return errors.Join(p.produce(ctx, tx, true, 1), p.produce(ctx, tx, true, 1))
		case 2:
			return errors.Join(sql("SAVEPOINT s"), p.produce(ctx, tx, false, 1), sql("ROLLBACK TO SAVEPOINT s"), p.produce(ctx, tx, true, 1))
		case 3:
			return errors.Join(sql("SAVEPOINT s"), p.produce(ctx, tx, true, 1), sql("RELEASE SAVEPOINT s"))
		case 4:
			return errors.Join(p.produce(ctx, tx, false, 1), sql("ROLLBACK; BEGIN"), p.produce(ctx, tx, true, 1))
		case 5:
			return errors.Join(p.produce(ctx, tx, false, 1), errUndo)
		}
		return p.produce(ctx, tx, true, 1)
	})
}

// produce writes n jobs, and their numbers if they are to last.
func (p *produces) produce(ctx context.Context, tx bun.Tx, lasts bool, n int) error {
	items := make([]outbox.Item, n)
	for i := range items {
		job := Job{N: int(p.next.Add(1)), Takes: time.Duration(1+rand.IntN(4)) * time.Millisecond}
		items[i].Payload = job
		if !lasts {
			continue
		}
		if _, err := tx.NewRaw("INSERT INTO produced (job) VALUES (?)", job.N).Exec(ctx); err != nil {
			return err
		}
	}
	_, err := p.producer.ProduceMany(ctx, tx, items...)
	return err
}
