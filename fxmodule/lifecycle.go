package fxmodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	amotel "github.com/asyncmonolith/asyncmonolith-go/otel"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

const (
	// stopReserve is the part of the stop timeout kept for later hooks, a fifth: fx skips the remaining
	// hooks when one overruns.
	stopReserve = 5
	// sampleEvery is how often the telemetry gauges are sampled.
	sampleEvery = 15 * time.Second
)

type runParams struct {
	fx.In

	Lifecycle  fx.Lifecycle
	Shutdowner fx.Shutdowner
	Registry   *bus.Registry
	Messages   *outbox.Processor
	Schedules  *schedule.Processor
	Notifier   *notify.Notifier
	Readers    *projection.Runner `optional:"true"`
	Receivers  *inbox.Runner
	Forwarders *relay.Runner
	Operations *ops.Runner
	Telemetry  *amotel.Telemetry
	Providers  telemetryParams
	Logger     *slog.Logger `optional:"true"`
}

// run starts and stops the processors with the application.
func run(p runParams) {
	l := &lifecycle{params: p, running: make(map[string]bool)}
	p.Lifecycle.Append(fx.Hook{OnStart: l.start, OnStop: l.stop})
}

// lifecycle is one start and stop of the application.
type lifecycle struct {
	params  runParams
	cancel  context.CancelFunc
	workers sync.WaitGroup
	// The notifier stops last, because consumers commit while they drain.
	cancelNotifier context.CancelFunc
	notifier       sync.WaitGroup
	mu             sync.Mutex
	running        map[string]bool // the parts that have not ended
	err            error           // of the processors
}

// start checks that the processors can run, and starts them. They do not use the hook's context,
// which ends with the start.
func (l *lifecycle) start(ctx context.Context) error {
	p := l.params
	if err := l.check(ctx); err != nil {
		return err
	}
	l.announce(ctx)
	// Quiet prevents spans of polls on a traced database.
	running, cancel := context.WithCancel(amotel.Quiet(context.WithoutCancel(ctx)))
	l.cancel = cancel
	notifying, cancelNotifier := context.WithCancel(context.WithoutCancel(running))
	l.cancelNotifier = cancelNotifier
	if p.Notifier != nil {
		l.background(notifying, &l.notifier, "notifier", p.Notifier.Run)
	}
	for _, part := range l.parts() {
		l.background(running, &l.workers, part.name, part.run)
		if p.Telemetry != nil && part.observe != nil {
			l.background(running, &l.workers, "telemetry of the "+part.name, func(ctx context.Context) error {
				return part.observe(ctx, sampleEvery)
			})
		}
	}
	l.background(running, &l.workers, "runner of operations", p.Operations.Run)
	return nil
}

// part is what checks, runs and is observed alike.
type part struct {
	given      bool
	name       string
	check, run func(context.Context) error
	observe    func(ctx context.Context, every time.Duration) error // nil: it has no gauges
}

func (l *lifecycle) parts() []part {
	p, t := l.params, l.params.Telemetry
	return slices.DeleteFunc([]part{
		{true, "processor of messages", p.Messages.Check, p.Messages.Run,
			func(ctx context.Context, every time.Duration) error { return t.Observe(ctx, p.Messages, every) }},
		{true, "processor of schedules", p.Schedules.Check, p.Schedules.Run, nil},
		{p.Readers != nil, "runner of projections", p.Readers.Check, p.Readers.Run,
			func(ctx context.Context, every time.Duration) error { return t.Observe(ctx, p.Readers, every) }},
		{p.Receivers != nil, "runner of receivers", p.Receivers.Check, p.Receivers.Run,
			func(ctx context.Context, every time.Duration) error { return t.Observe(ctx, p.Receivers, every) }},
		{p.Forwarders != nil, "runner of log forwarders", p.Forwarders.Check, p.Forwarders.Run,
			func(ctx context.Context, every time.Duration) error { return t.Observe(ctx, p.Forwarders, every) }},
	}, func(p part) bool { return !p.given })
}

// check checks one processor after the other, because most of their errors are the same.
func (l *lifecycle) check(ctx context.Context) error {
	var err error
	for _, part := range l.parts() {
		if err == nil {
			err = part.check(ctx)
		}
	}
	if errors.Is(err, outbox.ErrSchemaOutdated) {
		return fmt.Errorf("fxmodule: start: %w (or add fxmodule.Migrate() to the application's options)", err)
	}
	return err
}

// announce logs what runs, and whether telemetry and notifications are on: fx silently ignores a
// provider of the wrong type.
func (l *lifecycle) announce(ctx context.Context) {
	p, on := l.params.Providers, l.params.Telemetry != nil
	logger := cmp.Or(l.params.Logger, slog.Default())
	consumers := len(l.params.Registry.Consumers())
	if consumers == 0 {
		logger.WarnContext(ctx,
			"no consumers are registered: nothing will be consumed, and no payload can be produced; list them with fxmodule.Consumers")
	}
	logger.InfoContext(ctx, "processors starting", "consumers", consumers,
		"traces", describe(on, p.Tracers != nil || p.Config.TracerProvider != nil),
		"metrics", describe(on, p.Meters != nil || p.Config.MeterProvider != nil),
		"notifications", describe(l.params.Notifier != nil, true))
}

// background runs a part until it is cancelled. A part that ends by itself has failed, and shuts
// the application down.
func (l *lifecycle) background(ctx context.Context, wg *sync.WaitGroup, name string, run func(context.Context) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[name] = true
	wg.Go(func() {
		err := run(ctx)
		l.mu.Lock()
		delete(l.running, name)
		if err != nil {
			l.err = errors.Join(l.err, fmt.Errorf("fxmodule: %s: %w", name, err))
		}
		l.mu.Unlock()
		if ctx.Err() == nil {
			// An error means that the application is already stopping.
			_ = l.params.Shutdowner.Shutdown(fx.ExitCode(1))
		}
	})
}

// stop drains the processors. When only the reserve of the stop timeout is left, it ends the drain and
// waits for half of that.
func (l *lifecycle) stop(ctx context.Context) error {
	l.cancel()
	done := make(chan struct{})
	go func() { // ends with the workers, which Close ends
		l.workers.Wait()
		l.cancelNotifier()
		l.notifier.Wait()
		close(done)
	}()
	var late <-chan time.Time // never without a stop timeout
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		reserve := left / stopReserve
		select {
		case <-done:
		case <-time.After(left - reserve):
			l.params.Messages.Close()
			l.params.Readers.Close()
		}
		late = time.After(reserve / 2)
	}
	var err error
	select {
	case <-done:
	case <-late:
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		running := strings.Join(slices.Sorted(maps.Keys(l.running)), ", ")
		err = fmt.Errorf("fxmodule: stop: still running: %s: %w", running, err)
	}
	return errors.Join(l.err, err)
}
