//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"
	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Bar 6: consumers end in every way there is. Each costs its message an attempt
// and the processor nothing, and a stop is in time whatever still runs.

const (
	misdeedSlots   = 200
	misdeedTimeout = 2 * time.Second
)

// misdeed is the payload of bar 6: what the consumer is to do.
type misdeed struct {
	How string `json:"how"`
}

func (misdeed) PayloadType() string { return "chaos.misdeed" }

// The misdeeds.
const (
	panics     = "panic"
	panicsNil  = "panic(nil)"
	exits      = "Goexit"
	ignores    = "context ignored"
	meets      = "meet"  // returns when as many run as there are slots
	sticks     = "stuck" // never returns by itself
	attendance = 1000    // of each
)

// scoundrel is the consumer of all misdeeds.
type scoundrel struct {
	arrived atomic.Int64
	all     chan struct{} // closed when all have met
	stuck   chan struct{} // closed to let those go who are stuck
	freed   sync.Once
}

func (s *scoundrel) letGo() { s.freed.Do(func() { close(s.stuck) }) }

func (s *scoundrel) consume(ctx context.Context, m misdeed) error {
	switch m.How {
	case panics:
		panic("as told")
	case panicsNil:
		var nothing any
		panic(nothing)
	case exits:
		runtime.Goexit()
	case ignores:
		<-time.After(misdeedTimeout + 7*time.Second) // it is left behind after 5
	case meets:
		if s.arrived.Add(1) == misdeedSlots {
			close(s.all)
		}
		select {
		case <-s.all:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	case sticks:
		s.arrived.Add(1)
		<-s.stuck
	}
	return nil
}

// rogue is a processor in this process with a scoundrel for a consumer.
type rogue struct {
	*bar
	*scoundrel
	ctx      context.Context
	db       *bun.DB
	registry *bus.Registry
	producer *outbox.Producer
	stop     func() (time.Duration, error) // the processor that was started last
}

func newRogue(b *bar) *rogue {
	b.Helper()
	r := &rogue{bar: b, scoundrel: &scoundrel{stuck: make(chan struct{})}, ctx: context.WithoutCancel(b.Context()), db: openDSN(b, b.dsn())}
	var err error
	b.Cleanup(func() { // not one for each processor, which would count as what it leaves behind
		if r.stop != nil {
			_, _ = r.stop()
		}
	})
	b.Cleanup(r.letGo)
	if r.registry, err = bus.NewRegistry(bus.Consume("scoundrel", r.consume, bus.MaxAttempts(1))); err != nil {
		b.Fatal(err)
	}
	if r.producer, err = outbox.NewProducer(r.registry, outbox.ProducerConfig{}); err != nil {
		b.Fatal(err)
	}
	testapp.OK(b, outbox.Migrate(r.ctx, r.db, r.registry.Tables()))
	return r
}

const rogueDrain = 500 * time.Millisecond

func (r *rogue) processor() *outbox.Processor {
	r.Helper()
	quiet := slog.New(slog.DiscardHandler)
	processor, err := outbox.NewProcessor(r.db, r.registry, outbox.ProcessorConfig{
		Concurrency: misdeedSlots, DefaultTimeout: misdeedTimeout, DrainTimeout: rogueDrain, PollInterval: 100 * time.Millisecond,
		AttemptDelay: time.Millisecond, Logger: quiet, Middleware: middleware.Default(middleware.Options{Logger: quiet}),
	})
	if err != nil {
		r.Fatal(err)
	}
	return processor
}

// start runs a processor and returns how to stop it: with what Run returned, and
// after how long.
func (r *rogue) start(processor *outbox.Processor) (stop func() (time.Duration, error)) {
	ctx, cancel := context.WithCancel(r.ctx)
	var err error
	done := make(chan struct{})
	go func() { // waited for by stop, at the latest when the bar ends
		defer close(done)
		err = processor.Run(ctx)
	}()
	r.stop = func() (time.Duration, error) {
		begun := time.Now()
		cancel()
		<-done
		return time.Since(begun), err
	}
	return r.stop
}

func (r *rogue) produce(how string, n int) {
	r.Helper()
	testapp.OK(r, testapp.Second(r.producer.ProduceMany(r.ctx, r.db, slices.Repeat([]outbox.Item{{Payload: misdeed{How: how}}}, n)...)))
}

func (r *rogue) count(query string) (n int) {
	r.Helper()
	testapp.OK(r, r.db.NewRaw(query).Scan(r.ctx, &n))
	return n
}

func (r *rogue) idle() bool {
	return r.count("SELECT (SELECT count(*) FROM consumer_messages) + (SELECT count(*) FROM message_claims)") == 0
}

// allMeet checks that every slot still runs consumers.
func (r *rogue) allMeet(after string) {
	r.Helper()
	poisoned := r.count("SELECT count(*) FROM poisoned_messages") // who waits for the others in vain ends there
	r.arrived.Store(0)
	r.all = make(chan struct{})
	r.produce(meets, misdeedSlots)
	r.eventually(30*time.Second, after+": as many consumers run at once as there are slots", r.idle)
	vain := r.count("SELECT count(*) FROM poisoned_messages") - poisoned
	if got := r.arrived.Load(); got != misdeedSlots || vain > 0 {
		r.Errorf("%s: consumers at once: got %d, of which %d waited in vain for the others, want %d", after, got, vain, misdeedSlots)
	}
}

func barMisdeeds(b *bar) {
	r := newRogue(b)
	processor := r.processor()
	stop := r.start(processor)
	for i, how := range []string{panics, panicsNil, exits, ignores} {
		r.produce(how, attendance)
		r.eventually(2*time.Minute, how+": all are settled", func() bool {
			return r.idle() && len(processor.Health().Abandoned) == 0
		})
		want := attendance * (i + 1)
		if n := r.count("SELECT count(*) FROM poisoned_messages WHERE attempts = 1 AND crashes = 0 AND errors <> ''"); n != want {
			b.Errorf("%s: messages that cost an attempt and say why: got %d, want %d", how, n, want)
		}
		r.allMeet(how)
	}
	if got := processor.Stats().Abandoned; got != attendance {
		b.Errorf("abandoned: got %d, want %d", got, attendance)
	}
	const stuck = 8
	r.arrived.Store(0)
	r.produce(sticks, stuck)
	r.eventually(30*time.Second, "consumers are stuck", func() bool { return r.arrived.Load() == stuck })
	took, err := stop()
	var drain *bus.DrainError
	if !errors.As(err, &drain) || !slices.Equal(drain.Consumers, slices.Repeat([]string{"scoundrel"}, stuck)) {
		b.Errorf("run: got %v, want an error that names %d times the scoundrel", err, stuck)
	}
	if limit := rogueDrain + time.Second; took > limit {
		b.Errorf("run: returned after %s, want at most %s", took, limit)
	}
	if n := r.count("SELECT count(*) FROM consumer_messages WHERE attempts = 0 AND crashes = 0"); n != stuck {
		b.Errorf("messages of those who are stuck, given back untouched: got %d, want %d", n, stuck)
	}
	r.letGo()
	b.figure("%d each of panic, panic(nil), Goexit, context ignored: %d of %d slots intact, stop with %d stuck in %s (goal ≤ %s)",
		attendance, misdeedSlots, misdeedSlots, stuck, took.Round(time.Millisecond), rogueDrain+time.Second)
}

func barCycles(b *bar) {
	const allowed = 1 << 20
	r, n := newRogue(b), pick(b, 100, 1000, 1000)
	cycle := func(i int) {
		processor := r.processor()
		if i%10 == 0 {
			r.produce("", 5)
		}
		stop := r.start(processor)
		r.eventually(time.Minute, "the processor is ready", func() bool { return processor.Health().Ready && (i%10 != 0 || r.idle()) })
		if took, err := stop(); err != nil || took > time.Second {
			b.Errorf("cycle %d: got %v after %s, want a clean stop within a second", i, err, took)
		}
	}
	for i := range 50 { // pools, caches and compiled expressions fill
		cycle(i)
	}
	others := goleak.IgnoreCurrent()
	before := heap()
	for i := range n {
		cycle(i)
	}
	grown := int64(heap()) - int64(before)
	if grown > allowed {
		b.Errorf("heap: got %d bytes more after %d cycles, want at most %d", grown, n, allowed)
	}
	pool := goleak.IgnoreTopFunction("github.com/go-sql-driver/mysql.(*mysqlConn).startWatcher.func1") // each connection in the pool has one
	if err := goleak.Find(others, pool); err != nil {
		b.Errorf("goroutines: %v", err)
	}
	b.figure("%d starts and stops: heap %+d KiB (goal ≤ 1 MiB), no goroutine left", n, grown>>10)
}

// heap is what is in use once everything unused is gone.
func heap() uint64 {
	var m runtime.MemStats
	for range 3 { // finalizers and pools take more than one round
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
