package contender

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// bareApp is the application on Bun, without messages: a goroutine takes the place of a consumer.
type bareApp struct {
	db   *bun.DB
	work AppWork
	runs sync.WaitGroup
}

func openBareApp(ctx context.Context, dsn string, work AppWork) (App, error) {
	db, err := openAppDB(ctx, dsn)
	if err != nil {
		return nil, err
	}
	return &bareApp{db: db, work: work}, nil
}

func openAppDB(ctx context.Context, dsn string) (*bun.DB, error) {
	db, err := openBun(dsn, Variant{Pool: Pool}, nil)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, createTasks); err != nil {
		return nil, fmt.Errorf("create tables: %w", err)
	}
	return db, nil
}

// Do implements App.
func (a *bareApp) Do(ctx context.Context, t Task) error {
	err := a.db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error { return insertTaskRow(ctx, tx, t) })
	if err != nil {
		return err
	}
	a.runs.Go(func() {
		if !KindOf(t.N).Transactional() {
			a.work.run(t)
			return
		}
		err := a.db.RunInTx(context.WithoutCancel(ctx), nil, func(ctx context.Context, tx bun.Tx) error { return a.work.runInTx(ctx, tx, t) })
		if err != nil {
			a.work.Fail(err)
		}
		a.work.Done(t)
	})
	return nil
}

func insertTaskRow(ctx context.Context, tx bun.Tx, t Task) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO bench_tasks (n, email) VALUES (?, ?)", t.N, t.Email)
	return err
}

// runInTx is a consumer that inserts a row.
func (w AppWork) runInTx(ctx context.Context, tx bun.Tx, t Task) error {
	w.Begun(t)
	_, err := tx.ExecContext(ctx, "INSERT INTO bench_task_effects (n, at) VALUES (?, ?)", t.N, time.Unix(0, t.Begun))
	<-time.After(KindOf(t.N).Takes())
	return err
}

// Start implements App.
func (a *bareApp) Start(context.Context) (stop func() error, err error) {
	return func() error { a.runs.Wait(); return nil }, nil
}

// Close implements App.
func (a *bareApp) Close() error { return a.db.Close() }

// oursApp is the application with AsyncMonolith.
type oursApp struct {
	bareApp
	registry *bus.Registry
	producer *outbox.Producer
}

func openOursApp(ctx context.Context, dsn string, work AppWork) (App, error) {
	db, err := openAppDB(ctx, dsn)
	if err != nil {
		return nil, err
	}
	a := &oursApp{bareApp: bareApp{db: db, work: work}}
	a.registry, err = bus.NewRegistry(consumersOf(work)...)
	if err == nil {
		a.producer, err = outbox.NewProducer(a.registry, outbox.ProducerConfig{Logger: logger()})
	}
	if err == nil {
		err = outbox.Migrate(ctx, db, a.registry.Tables())
	}
	return a, err
}

func consumersOf(w AppWork) []bus.Consumer {
	return []bus.Consumer{
		consumerOf[kind0](w), consumerOf[kind1](w), consumerOf[kind2](w), consumerOf[kind3](w), consumerOf[kind4](w),
		consumerOf[kind5](w), consumerOf[kind6](w), consumerOf[kind7](w), consumerOf[kind8](w), consumerOf[kind9](w),
	}
}

func consumerOf[K kind](w AppWork) bus.Consumer {
	name := "consumer-of-" + taskOf[K]{}.PayloadType()
	if !(taskOf[K]{}).kind().Transactional() {
		return bus.Consume(name, func(_ context.Context, t taskOf[K]) error { w.run(t.Task); return nil })
	}
	return outbox.ConsumeTx(name, func(ctx context.Context, tx bun.Tx, t taskOf[K]) error {
		if err := w.runInTx(ctx, tx, t.Task); err != nil {
			w.Fail(err)
			return err
		}
		w.Done(t.Task)
		return nil
	})
}

// Do implements App.
func (a *oursApp) Do(ctx context.Context, t Task) error {
	return a.producer.RunInTx(ctx, a.db, func(ctx context.Context, tx bun.Tx) error {
		if err := insertTaskRow(ctx, tx, t); err != nil {
			return err
		}
		_, err := a.producer.Produce(ctx, tx, t.withType())
		return err
	})
}

// Start implements App.
func (a *oursApp) Start(ctx context.Context) (stop func() error, err error) {
	processor, err := outbox.NewProcessor(a.db, a.registry, outbox.ProcessorConfig{Logger: logger()})
	if err != nil {
		return nil, err
	}
	return background(ctx, a.work.Fail, processor.Run), nil
}
