package contender

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
)

// RiverSettings are those that decide how fast River is.
type RiverSettings struct {
	// FetchCooldown and FetchPollInterval are those of river.Config. Zero means
	// River's default.
	FetchCooldown, FetchPollInterval time.Duration
	// Workers is how many jobs run at once. River has no default for it.
	Workers int
}

// Tuned returns the settings of River's own benchmark command.
func Tuned() RiverSettings {
	return RiverSettings{FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Workers: 2000}
}

// Defaults returns what River's documentation starts with.
func Defaults() RiverSettings { return RiverSettings{Workers: 100} }

// River is River on its pgx driver.
func River(name string, settings RiverSettings) Contender {
	return Contender{Name: name, Open: func(ctx context.Context, dsn string, work Work) (System, error) {
		pool, err := openPool(ctx, dsn, work.Wire)
		if err != nil {
			return nil, err
		}
		s := &riverSystem{pool: pool, work: work, settings: settings}
		if err := s.install(ctx); err != nil {
			pool.Close()
			return nil, err
		}
		return s, nil
	}}
}

// riverSystem is River in one database.
type riverSystem struct {
	pool     *pgxpool.Pool
	work     Work
	settings RiverSettings
	inserter *river.Client[pgx.Tx]
	tail     int64
}

func (s *riverSystem) install(ctx context.Context) error {
	driver := riverpgxv5.New(s.pool)
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: logger()})
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if s.work.Transactional {
		if _, err := s.pool.Exec(ctx, createEffects); err != nil {
			return err
		}
	}
	s.inserter, err = river.NewClient(driver, &river.Config{Logger: logger()})
	return err
}

// Produce implements System.
func (s *riverSystem) Produce(ctx context.Context, batch []Signup) error {
	params := make([]river.InsertManyParams, len(batch))
	for i := range batch {
		params[i].Args = batch[i]
	}
	n, err := s.inserter.InsertManyFast(ctx, params)
	if err == nil && n != len(batch) {
		err = fmt.Errorf("inserted %d jobs, want %d", n, len(batch))
	}
	return err
}

// ProduceOne implements System.
func (s *riverSystem) ProduceOne(ctx context.Context, payload Signup) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := s.inserter.InsertTx(ctx, tx, payload, nil)
		return err
	})
}

// Start implements System.
func (s *riverSystem) Start(ctx context.Context) (stop func() error, err error) {
	if err := s.pool.QueryRow(ctx, "SELECT coalesce(max(id), 0) FROM river_job").Scan(&s.tail); err != nil {
		return nil, fmt.Errorf("last id: %w", err)
	}
	s.tail -= tail
	workers := river.NewWorkers()
	if err := river.AddWorkerSafely(workers, &riverWorker{pool: s.pool, work: s.work}); err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(s.pool), &river.Config{
		FetchCooldown:     s.settings.FetchCooldown,
		FetchPollInterval: s.settings.FetchPollInterval,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: s.settings.Workers}},
		Workers:           workers,
		ErrorHandler:      riverErrors(s.work.Fail),
		Logger:            logger(),
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error { return client.Stop(context.WithoutCancel(ctx)) }, nil
}

// Pending implements System.
func (s *riverSystem) Pending(ctx context.Context) (bool, error) { return s.remains(ctx, s.tail) }

func (s *riverSystem) remains(ctx context.Context, after int64) (found bool, err error) {
	err = s.pool.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM river_job WHERE id > $1 AND state <> 'completed')", after).Scan(&found)
	return found, err
}

// Verify implements System.
func (s *riverSystem) Verify(ctx context.Context) error {
	found, err := s.remains(ctx, 0)
	if err == nil && found {
		err = errors.New("jobs remain that are not completed")
	}
	return err
}

// Close implements System.
func (s *riverSystem) Close() error {
	s.pool.Close()
	return nil
}

type riverWorker struct {
	river.WorkerDefaults[Signup]
	pool *pgxpool.Pool
	work Work
}

// Work implements river.Worker.
func (w *riverWorker) Work(ctx context.Context, job *river.Job[Signup]) error {
	w.work.Handle(job.Args)
	if !w.work.Transactional {
		return nil
	}
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertEffect, job.Args.UserID, job.Args.Email, job.Args.At); err != nil {
			return err
		}
		_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
		return err
	})
}

// riverErrors passes on what River would retry: here nothing may fail.
type riverErrors func(error)

// HandleError implements river.ErrorHandler.
func (fail riverErrors) HandleError(_ context.Context, _ *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	fail(err)
	return nil
}

// HandlePanic implements river.ErrorHandler.
func (fail riverErrors) HandlePanic(_ context.Context, _ *rivertype.JobRow, value any, _ string) *river.ErrorHandlerResult {
	fail(fmt.Errorf("panic: %v", value))
	return nil
}
