package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/connect"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// Errors of [New]; use errors.Is.
var (
	// ErrForeign: the file is not a demo database, and is left alone.
	ErrForeign = errors.New("the file exists and is not a demo database")
	// ErrExists: the file is a demo database.
	ErrExists = errors.New("the file exists already")
)

const (
	workers    = 3
	tellsEvery = 500 * time.Millisecond // of itself, each process
	patience   = 3 * time.Minute        // for the shop's life to come about, where others keep the machine busy
)

// Demo is a demo database. It is not safe for concurrent use.
type Demo struct {
	db        *bun.DB
	shop      *shop
	registry  *bus.Registry
	producer  *outbox.Producer
	scheduler *schedule.Scheduler
	fires     *schedule.Processor
	log       *eventlog.Log
	service   *ops.Service
	admin     *admin.Client

	workers         []*outbox.Processor
	balances, sales *projection.Runner
	operations      *ops.Runner

	orders int // that were placed
}

// New makes a new file, in place of a demo database if force is set. The caller closes it.
func New(ctx context.Context, path string, force bool) (*Demo, error) {
	if err := makeWay(path, force); err != nil {
		return nil, fmt.Errorf("demo: %s: %w", path, err)
	}
	db, err := connect.Create(ctx, connect.Secret("sqlite:"+filepath.Clean(path)))
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	d := &Demo{db: db, shop: new(shop)}
	if err := d.set(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("demo: %w", err), db.Close())
	}
	return d, nil
}

// Waits is the id of a message that waits, and goes on to: its consumer is paused.
func (d *Demo) Waits(ctx context.Context) int64 {
	found, _, err := d.admin.List(ctx, d.db, admin.Filter{Consumer: catalogue}, admin.Page{Size: 1})
	if err != nil || len(found) == 0 {
		return 0
	}
	return found[0].ID
}

// Close closes the database.
func (d *Demo) Close() error { return d.db.Close() }

// makeWay sees that there is no file of that path any more.
func makeWay(path string, force bool) error {
	head := make([]byte, len(marked())+markAt)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n, _ := file.ReadAt(head, 0)
	if err := file.Close(); err != nil {
		return err
	}
	switch {
	case n < len(head) || string(head[markAt:]) != marked():
		return ErrForeign
	case !force:
		return ErrExists
	}
	for _, name := range []string{path + "-wal", path + "-shm", path} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// set makes what the shop consists of, and its tables.
func (d *Demo) set(ctx context.Context) error {
	quiet := slog.New(slog.DiscardHandler)
	types, err := events()
	if err != nil {
		return err
	}
	if d.registry, err = (bus.RegistryConfig{Events: types, HeartbeatInterval: tellsEvery}).NewRegistry(d.shop.consumers()...); err != nil {
		return err
	}
	if err := d.mark(ctx); err != nil {
		return err
	}
	if err := outbox.Migrate(ctx, d.db, d.registry.Tables()); err != nil {
		return err
	}
	var errs [10]error
	d.producer, errs[0] = outbox.NewProducer(d.registry, outbox.ProducerConfig{Logger: quiet})
	d.scheduler, errs[1] = schedule.NewScheduler(d.registry, schedule.SchedulerConfig{})
	reports, err := outbox.NewProducer(
		d.registry, outbox.ProducerConfig{Logger: quiet, Middleware: []bus.ProduceMiddleware{bus.PerMessage(noReports)}},
	)
	if err != nil {
		return err
	}
	d.fires, errs[2] = schedule.NewProcessor(d.db, d.registry, reports, schedule.ProcessorConfig{Logger: quiet})
	d.log, errs[3] = eventlog.NewLog(d.registry, d.producer, eventlog.LogConfig{})
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	for range workers {
		worker, err := outbox.NewProcessor(
			d.db, d.registry, outbox.ProcessorConfig{Logger: quiet, Concurrency: 8, BatchSize: 20, PollInterval: 200 * time.Millisecond},
		)
		if err != nil {
			return err
		}
		d.workers = append(d.workers, worker)
	}
	d.balances, errs[4] = projection.NewRunner(d.db, d.log, projection.RunnerConfig{Logger: quiet}, d.shop.balances())
	d.sales, errs[5] = projection.NewRunner(d.db, d.log, projection.RunnerConfig{Logger: quiet}, d.shop.sales())
	d.service, errs[6] = ops.New(ops.Config{DB: d.db, Registry: d.registry, Redact: ops.ShowAll, Logger: quiet, UndoWindow: -1})
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if d.admin, err = admin.NewClient(d.registry); err != nil {
		return err
	}
	d.operations, err = ops.NewRunner(d.service, nil)
	return err
}

// noReports is a layer of the scheduler's producer that has a mistake in it.
func noReports(_ context.Context, m *bus.Message) error {
	if m.PayloadType == (reportDue{}).PayloadType() {
		return errors.New(`report "weekly": the template has no section "totals"`)
	}
	return nil
}

// Run has the shop live: for long enough that there is something of everything, and then for a while
// longer; less than 0 stands for as long as ctx lasts. ready is called once there is something to look
// at. All that Run starts has ended when it returns. The end of ctx is an error only before ready.
func (d *Demo) Run(ctx context.Context, stay time.Duration, ready func()) error {
	live := stay != 0
	soon, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the demo took too long to start"))
	defer cancel()
	if err := d.open(soon); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	running, stop := d.start(ctx)
	err := d.story(soon, running)
	if !live || err != nil {
		err = errors.Join(err, stop())
	}
	if err == nil {
		err = d.aftermath(soon, live)
	}
	if err == nil {
		ready()
	}
	if err == nil && live {
		err = d.goOn(running, stay)
	}
	if err = errors.Join(err, stop()); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// start starts everything. The context ends with what it was given, and as soon as something of that
// ends by itself; stop has all of it end, waits, and says why something ended.
func (d *Demo) start(ctx context.Context) (running context.Context, stop func() error) {
	running, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	runs := []func(context.Context) error{d.fires.Run, d.balances.Run, d.operations.Run}
	for _, worker := range d.workers {
		runs = append(runs, worker.Run)
	}
	for _, run := range runs {
		all.Go(func() {
			if err := run(running); err != nil {
				cancel(err)
			}
		})
	}
	return running, sync.OnceValue(func() error {
		cancel(nil)
		all.Wait()
		if ctx.Err() != nil || errors.Is(context.Cause(running), context.Canceled) {
			return nil
		}
		return context.Cause(running)
	})
}

// insist looks until there is an answer: a machine that is busy with other things is no reason to give up.
func insist[T any](ctx context.Context, look func(context.Context) (T, error)) (found T, err error) {
	err = until(ctx, ctx, func(ctx context.Context) (bool, error) {
		found, err = look(ctx)
		return err == nil, err
	})
	return found, err
}

// until waits until something holds.
func until(ctx, running context.Context, holds func(context.Context) (bool, error)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds(ctx)
		if ok || err != nil && !errors.Is(err, ops.ErrBusy) {
			return err
		}
		select {
		case <-tick.C:
		case <-running.Done():
			return context.Cause(running)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
