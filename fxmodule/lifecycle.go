package fxmodule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	l := &lifecycle{params: p}
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
	err            error // of the processors
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
	l.background(running, &l.workers, "processor of messages", p.Messages.Run)
	l.background(running, &l.workers, "processor of schedules", p.Schedules.Run)
	if p.Readers != nil {
		l.background(running, &l.workers, "runner of projections", p.Readers.Run)
	}
	if p.Receivers != nil {
		l.background(running, &l.workers, "runner of receivers", p.Receivers.Run)
	}
	if p.Forwarders != nil {
		l.background(running, &l.workers, "runner of log forwarders", p.Forwarders.Run)
	}
	l.background(running, &l.workers, "runner of operations", p.Operations.Run)
	l.observe(running)
	return nil
}

// observe samples what runs for telemetry.
func (l *lifecycle) observe(running context.Context) {
	p := l.params
	if p.Telemetry != nil {
		l.background(running, &l.workers, "telemetry", func(ctx context.Context) error {
			return p.Telemetry.Observe(ctx, p.Messages, sampleEvery)
		})
		if p.Readers != nil {
			l.background(running, &l.workers, "telemetry of projections", func(ctx context.Context) error {
				return p.Telemetry.ObserveReaders(ctx, p.Readers, sampleEvery)
			})
		}
		if p.Receivers != nil {
			l.background(running, &l.workers, "telemetry of receivers", func(ctx context.Context) error {
				return p.Telemetry.ObserveReceivers(ctx, p.Receivers, sampleEvery)
			})
		}
		if p.Forwarders != nil {
			l.background(running, &l.workers, "telemetry of log forwarders", func(ctx context.Context) error {
				return p.Telemetry.ObserveLogForwarders(ctx, p.Forwarders, sampleEvery)
			})
		}
	}
}

// check checks one processor after the other, because most of their errors are the same.
func (l *lifecycle) check(ctx context.Context) error {
	err := l.params.Messages.Check(ctx)
	if err == nil {
		err = l.params.Schedules.Check(ctx)
	}
	if err == nil && l.params.Readers != nil {
		err = l.params.Readers.Check(ctx)
	}
	if err == nil && l.params.Receivers != nil {
		err = l.params.Receivers.Check(ctx)
	}
	if err == nil && l.params.Forwarders != nil {
		err = l.params.Forwarders.Check(ctx)
	}
	if errors.Is(err, outbox.ErrSchemaOutdated) {
		return fmt.Errorf("fxmodule: start: %w (or have fxmodule.Migrate() among the options of the application)", err)
	}
	return err
}

// announce logs what runs, and which telemetry is on: fx silently ignores a provider of the wrong
// type.
func (l *lifecycle) announce(ctx context.Context) {
	p, on := l.params.Providers, l.params.Telemetry != nil
	logger := cmp.Or(l.params.Logger, slog.Default())
	consumers := len(l.params.Registry.Consumers())
	if consumers == 0 {
		logger.WarnContext(
			ctx,
			"no consumers are registered: nothing will be consumed, and no payload can be produced; list them with fxmodule.Consumers",
		)
	}
	logger.InfoContext(ctx, "processors start", "consumers", consumers,
		"traces", describe(on, p.Tracers != nil || p.Config.TracerProvider != nil),
		"metrics", describe(on, p.Meters != nil || p.Config.MeterProvider != nil))
}

// background runs a part until it is cancelled. A part that ends by itself has failed, and shuts
// the application down.
func (l *lifecycle) background(ctx context.Context, wg *sync.WaitGroup, name string, run func(context.Context) error) {
	wg.Go(func() {
		err := run(ctx)
		if err != nil {
			l.mu.Lock()
			l.err = errors.Join(l.err, fmt.Errorf("fxmodule: %s: %w", name, err))
			l.mu.Unlock()
		}
		if ctx.Err() == nil {
			// An error means that the application is already stopping.
			_ = l.params.Shutdowner.Shutdown(fx.ExitCode(1))
		}
	})
}

// stop drains the processors. Shortly before the stop timeout it ends the drain.
func (l *lifecycle) stop(ctx context.Context) error {
	l.cancel()
	done := make(chan struct{})
	go func() { // ends with the workers, which Close ends
		l.workers.Wait()
		l.cancelNotifier()
		l.notifier.Wait()
		close(done)
	}()
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		timer := time.NewTimer(left - left/stopReserve)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			l.params.Messages.Close()
		}
	}
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("fxmodule: stop: %w", context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
