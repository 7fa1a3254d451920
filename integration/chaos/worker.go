//go:build unix

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// WorkerVariable is the environment variable that makes a test binary act as a
// worker: a WorkerConfig as JSON.
const WorkerVariable = "ASYNCMONOLITH_CHAOS_WORKER"

// WorkerConfig sets up a worker process.
type WorkerConfig struct {
	Name    string
	DSN     string
	Ledger  string        // the directory
	Poll    time.Duration // PollInterval; defaults to 200 ms, so that less time is spent on waiting
	Plain   []string
	Stepped []string // those of Plain that do their work in steps
	Tx      []string
	Grouped []string // those of Tx that share transactions
	Batched []string // those that take many at once
	Ordered []string // those that run the jobs of a key in order
	Skips   []string // those of Ordered that skip what is poisoned
	Limited []string // those of which Limit run at once, in all processes together
	Limit   int
	Shared  []string // those of which PerKey of a key run at once, in all processes together
	PerKey  int
	Rated   []string // those of which Rate start in a second, in all processes together
	Rate    int
	Options map[string]Options // what some have besides
	Lease   time.Duration
	Drain   time.Duration
	Handler int // the Concurrency; zero for the default
	Claim   int // the BatchSize; zero for the default
	Loops   int // the Fetchers; zero for the default
	Pool    int // the most connections; zero for 16
	Relay   RelayConfig
	Produce ProduceConfig
	// Schedules has it fire schedules, too.
	Schedules bool
	// AddressSpace bounds the memory of the process, in bytes; zero does not.
	AddressSpace uint64
}

// Job is the payload of every run. What its consumers do is part of it.
type Job struct {
	N     int           `json:"n"`
	Takes time.Duration `json:"takes"`
	Do    Deed          `json:"do,omitempty"`
	Key   string        `json:"key,omitempty"`
	Pad   string        `json:"pad,omitempty"`  // makes it large
	Left  int           `json:"left,omitempty"` // services that it goes on to: see RingConfig
}

// OrderingKey is what ordered consumers go by.
func (j Job) OrderingKey() string { return j.Key }

// PayloadType implements bus.Payload.
func (Job) PayloadType() string { return "chaos.job" }

// Deed is what a consumer does after its time, besides returning nil.
type Deed string

// The deeds.
const (
	Exit   Deed = "exit"   // ends the process
	Race   Deed = "race"   // makes the runtime end it: concurrent map writes
	Hog    Deed = "hog"    // takes all the memory there is
	Fail   Deed = "fail"   // returns an error
	Once   Deed = "once"   // returns an error, the first time
	Doom   Deed = "doom"   // returns a permanent error
	Halt   Deed = "halt"   // returns a permanent error, until the run is lenient: see Lenient
	Ignore Deed = "ignore" // takes its time whatever its context says
	Query  Deed = "query"  // spends its time with queries, on the processor's own pool
	Crowd  Deed = "crowd"  // does nothing, and is not in the ledger unless it fails to be published
	Stray  Deed = "stray"  // does nothing, but the broker has no place for its job: see RelayAstray
)

// Report is what a worker prints when it stops in order.
type Report struct {
	Stats outbox.Stats
	Err   string
}

// ready is what a worker prints once it can be signalled.
const ready = "ready"

// WorkerMain runs a worker process until SIGTERM, and returns its exit code. A
// second SIGTERM cuts its drain short.
func WorkerMain() int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	go func() { // until this process ends, or the one that started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(9)
	}()
	fmt.Println(ready)
	var config WorkerConfig
	if err := json.Unmarshal([]byte(os.Getenv(WorkerVariable)), &config); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: worker:", err)
		return 2
	}
	report, err := work(config, signals)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: worker:", err)
		return 2
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: worker:", err)
		return 2
	}
	return 0
}

func work(config WorkerConfig, signals <-chan os.Signal) (Report, error) {
	if config.AddressSpace > 0 {
		limit := syscall.Rlimit{Cur: config.AddressSpace, Max: config.AddressSpace}
		if err := syscall.Setrlimit(syscall.RLIMIT_AS, &limit); err != nil {
			return Report{}, fmt.Errorf("address space: %w", err)
		}
	}
	recorder, err := NewRecorder(config.Ledger, config.Name)
	if err != nil {
		return Report{}, err
	}
	defer recorder.Close()
	db, err := Source(config.DSN).Open(cmp.Or(config.Pool, 16))
	if err != nil {
		return Report{}, err
	}
	defer db.Close()
	recorder.pool = db
	relays, err := newRelays(config, recorder)
	if err != nil {
		return Report{}, err
	}
	defer relays.close()
	registry, err := relays.registry(config)
	if err != nil {
		return Report{}, err
	}
	if recorder.producer, err = outbox.NewProducer(registry, outbox.ProducerConfig{}); err != nil {
		return Report{}, err
	}
	processor, err := config.processor(db, registry)
	if err != nil {
		return Report{}, err
	}
	runs, err := relays.runs(db, registry)
	if err != nil {
		return Report{}, err
	}
	runs = append(runs, processor.Run)
	if config.Produce.Loops > 0 {
		runs = append(runs, config.produces(db, recorder.producer))
	}
	if config.Schedules {
		schedules, err := scheduled(db, registry)
		if err != nil {
			return Report{}, err
		}
		runs = append(runs, schedules.Run)
	}
	return runUntil(signals, processor, runs), nil
}

// startTimeout is how long a worker waits for a database that is away when it starts: a bar may have killed it by then.
const startTimeout = time.Minute

func scheduled(db *bun.DB, registry *bus.Registry) (*schedule.Processor, error) {
	producer, err := outbox.NewProducer(registry, outbox.ProducerConfig{})
	if err != nil {
		return nil, err
	}
	logger := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	return schedule.NewProcessor(db, registry, producer, schedule.ProcessorConfig{Logger: logger, StartTimeout: startTimeout})
}

func (config WorkerConfig) processor(db *bun.DB, registry *bus.Registry) (*outbox.Processor, error) {
	logger, runs := slog.New(slog.NewJSONHandler(os.Stderr, nil)), slog.DiscardHandler
	if config.Relay.Publishes != "" { // what it says of an outage is all that anybody says
		runs = slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})
	}
	return outbox.NewProcessor(db, registry, outbox.ProcessorConfig{
		StartTimeout: startTimeout, LeaseDuration: config.Lease, DrainTimeout: config.Drain, Concurrency: config.Handler, Logger: logger,
		BatchSize: config.Claim, Fetchers: config.Loops,
		AttemptDelay: 100 * time.Millisecond, PollInterval: cmp.Or(config.Poll, 200*time.Millisecond), DefaultTimeout: 2 * time.Minute,
		Middleware: middleware.Default(middleware.Options{Logger: slog.New(runs), Backoff: middleware.Constant(100 * time.Millisecond)}),
	})
}

// runUntil runs everything the way a service does.
func runUntil(signals <-chan os.Signal, processor *outbox.Processor, runs []func(context.Context) error) Report {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	done := make(chan error, len(runs))
	for _, run := range runs {
		go func() { done <- run(ctx) }() // waited for below
	}
	var err error
	for ended := 0; ended < len(runs); {
		select {
		case <-signals:
			if ctx.Err() != nil {
				processor.Close()
			}
			stop(errors.New("SIGTERM"))
		case one := <-done:
			ended++
			err = errors.Join(err, one)
			stop(errors.New("another part has ended"))
		}
	}
	report := Report{Stats: processor.Stats()}
	if err != nil {
		report.Err = err.Error()
	}
	return report
}

// NewRegistry registers the consumers of a run: plain ones, transactional ones whose effect is
// a row, and others.
func NewRegistry(recorder *Recorder, config WorkerConfig, others ...bus.Consumer) (*bus.Registry, error) {
	consumers := others
	for _, name := range config.Plain {
		if slices.Contains(config.Batched, name) {
			consumers = append(consumers, bus.ConsumeBatch(name, func(ctx context.Context, jobs []Job) error {
				return recorder.runBatch(ctx, jobs, slices.Contains(config.Ordered, name), nil)
			}, config.flow(name)...))
			continue
		}
		consumers = append(consumers, bus.Consume(name, func(ctx context.Context, job Job) error {
			var effect func() error
			if slices.Contains(config.Stepped, name) {
				effect = func() error { return recorder.steps(ctx, job) }
			}
			return recorder.run(ctx, job, time.Time{}, effect)
		}, config.flow(name)...))
	}
	for _, name := range config.Tx {
		consumers = append(consumers, config.transactional(recorder, name))
	}
	return config.Relay.Log.registry(consumers)
}

// transactional is a consumer whose effect is a row.
func (config WorkerConfig) transactional(recorder *Recorder, name string) bus.Consumer {
	options := config.flow(name)
	if slices.Contains(config.Grouped, name) {
		options = append(options, outbox.GroupCommit(20))
	}
	effect := func(ctx context.Context, tx bun.Tx, job Job) error {
		if job.Do == Ignore {
			ctx = context.WithoutCancel(ctx)
		}
		_, err := tx.NewRaw("INSERT INTO effects (consumer, job) VALUES (?, ?)", name, job.N).Exec(ctx)
		if err == nil && name == config.Relay.Ring.By {
			err = recorder.passOn(ctx, tx, job)
		}
		return err
	}
	if slices.Contains(config.Batched, name) {
		return outbox.ConsumeBatchTx(name, func(ctx context.Context, tx bun.Tx, jobs []Job) error {
			return recorder.runBatch(ctx, jobs, slices.Contains(config.Ordered, name), func(job Job) error { return effect(ctx, tx, job) })
		}, options...)
	}
	return outbox.ConsumeTx(name, func(ctx context.Context, tx bun.Tx, job Job) error {
		return recorder.run(ctx, job, time.Time{}, func() error { return effect(ctx, tx, job) })
	}, options...)
}

// Lenient has jobs be done from now on that halt.
func Lenient(dir string) error { return os.WriteFile(filepath.Join(dir, lenient), nil, 0o600) }

const lenient = "lenient"

// runBatch is run for one job after the other. Of ordered ones it leaves out those behind one of their
// key that has failed, which are to come again whatever it says of them. Where much time has passed
// between two jobs its process may have stood still for longer than its lease, which its context tells
// too late: then it gives back the rest.
func (r *Recorder) runBatch(ctx context.Context, jobs []Job, ordered bool, effect func(Job) error) error {
	failed := bus.BatchError{}
	stuck := make(map[string]bool)
	called := time.Now()
	last := called
	for i, m := range bus.BatchFromContext(ctx) {
		now := time.Now()
		if now.Sub(last) > standstill {
			for ; i < len(jobs); i++ {
				failed[i] = bus.Snooze(0)
			}
			break
		}
		last = now
		if key := jobs[i].Key; !stuck[key] {
			failed[i] = r.run(bus.ContextWithMessage(ctx, m), jobs[i], called, of(effect, jobs[i]))
			stuck[key] = ordered && failed[i] != nil
		}
	}
	return failed
}

// of is a job's own effect.
func of(effect func(Job) error, job Job) func() error {
	if effect == nil {
		return nil
	}
	return func() error { return effect(job) }
}

// standstill is longer than any job takes on a busy machine, and much shorter than a lease.
const standstill = 500 * time.Millisecond

// run is what every consumer does. One of a batch began when the batch was called.
func (r *Recorder) run(ctx context.Context, job Job, called time.Time, effect func() error) error {
	if job.Do == Crowd {
		return nil
	}
	m, _ := bus.MessageFromContext(ctx)
	record := func(kind EventKind) error {
		return r.write(Event{Kind: kind, Consumer: m.Consumer, Job: job.N, Attempt: m.Attempt, Crashes: m.CrashCount, Called: called})
	}
	if err := record(Started); err != nil {
		return err
	}
	if err := r.spend(ctx, job); err != nil {
		return errors.Join(err, record(Failed))
	}
	if effect != nil {
		if err := effect(); err != nil {
			return errors.Join(err, record(Failed))
		}
	}
	if job.Do == Halt {
		if _, err := os.Stat(filepath.Join(r.dir, lenient)); err == nil {
			return record(Finished)
		}
	}
	if err := job.act(m.Attempt); err != nil {
		return errors.Join(err, record(Failed))
	}
	return record(Finished)
}

// spend spends the job's time.
func (r *Recorder) spend(ctx context.Context, job Job) error {
	if job.Do != Query {
		return job.take(ctx)
	}
	sleep := "SELECT pg_sleep(0.02)"
	if r.pool.Dialect().Name() == dialect.MySQL {
		sleep = "SELECT SLEEP(0.02)"
	}
	for end := time.Now().Add(job.Takes); time.Now().Before(end); {
		if _, err := r.pool.NewRaw(sleep).Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// take waits for the job's time.
func (j Job) take(ctx context.Context) error {
	if j.Takes == 0 {
		return nil
	}
	canceled := ctx.Done()
	if j.Do == Ignore {
		canceled = nil
	}
	select {
	case <-time.After(j.Takes):
		return nil
	case <-canceled:
		return context.Cause(ctx)
	}
}
