package contender

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverApp is the application on pgx with River.
type riverApp struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func openRiverApp(ctx context.Context, dsn string, work AppWork, settings RiverSettings) (App, error) {
	pool, err := openPool(ctx, dsn, nil)
	if err != nil {
		return nil, err
	}
	a := &riverApp{pool: pool}
	if err := a.install(ctx, work, settings); err != nil {
		pool.Close()
		return nil, err
	}
	return a, nil
}

func (a *riverApp) install(ctx context.Context, work AppWork, settings RiverSettings) error {
	driver := riverpgxv5.New(a.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: logger()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if _, err := a.pool.Exec(ctx, createTasks, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	workers := river.NewWorkers()
	a.addWorkers(workers, work)
	a.client, err = river.NewClient(driver, &river.Config{
		FetchCooldown:     settings.FetchCooldown,
		FetchPollInterval: settings.FetchPollInterval,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: settings.Workers}},
		Workers:           workers,
		ErrorHandler:      riverErrors(work.Fail),
		Logger:            logger(),
	})
	return err
}

func (a *riverApp) addWorkers(workers *river.Workers, w AppWork) {
	river.AddWorker(workers, riverTasks[kind0]{pool: a.pool, work: w})
	river.AddWorker(workers, riverTasks[kind1]{pool: a.pool, work: w})
	river.AddWorker(workers, riverTasks[kind2]{pool: a.pool, work: w})
	river.AddWorker(workers, riverTasks[kind3]{pool: a.pool, work: w})
	river.AddWorker(workers, riverTasks[kind4]{pool: a.pool, work: w})
	river.AddWorker(workers, riverTasks[kind5]{pool: a.pool, work: w})
	river.AddWorker(workers, riverTasks[kind6]{pool: a.pool, work: w})
	river.AddWorker(workers, riverTasks[kind7]{pool: a.pool, work: w})
	river.AddWorker(workers, riverTasks[kind8]{pool: a.pool, work: w})
	river.AddWorker(workers, riverTasks[kind9]{pool: a.pool, work: w})
}

// riverTasks works tasks of a kind.
type riverTasks[K kind] struct {
	river.WorkerDefaults[taskOf[K]]
	pool *pgxpool.Pool
	work AppWork
}

// Work implements river.Worker.
func (w riverTasks[K]) Work(ctx context.Context, job *river.Job[taskOf[K]]) error {
	t := job.Args.Task
	if !KindOf(t.N).Transactional() {
		w.work.run(t)
		return nil
	}
	err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		w.work.Begun(t)
		if _, err := tx.Exec(ctx, insertTaskEffect, t.N, time.Unix(0, t.Begun)); err != nil {
			return err
		}
		<-time.After(KindOf(t.N).Takes())
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
	w.work.Done(t)
	return err
}

// Do implements App.
func (a *riverApp) Do(ctx context.Context, t Task) error {
	return pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertTask, t.N, t.Email); err != nil {
			return err
		}
		_, err := a.client.InsertTx(ctx, tx, t.withType(), nil)
		return err
	})
}

// Start implements App.
func (a *riverApp) Start(ctx context.Context) (stop func() error, err error) {
	if err := a.client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error { return a.client.Stop(context.WithoutCancel(ctx)) }, nil
}

// Close implements App.
func (a *riverApp) Close() error {
	a.pool.Close()
	return nil
}
