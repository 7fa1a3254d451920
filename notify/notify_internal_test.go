package notify

// Internal, to replace the server by a fake on virtual time.

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a fake PostgreSQL and a Listener of it.
type server struct {
	mu       sync.Mutex
	texts    []string    // what was sent
	times    []time.Time // and when
	listens  int
	deaf     bool  // accepts a LISTEN and delivers nothing
	down     error // refuses everything
	mute     bool  // Listen never gets so far as to listen
	received func(string)
	lost     chan error    // ends Listen
	takes    time.Duration // for each notification
}

func newServer() *server { return &server{lost: make(chan error)} }

func (s *server) send(_ context.Context, text string) error {
	defer func() { <-time.After(s.takes) }() // with the lock given back
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return s.down
	}
	s.texts, s.times = append(s.texts, text), append(s.times, time.Now())
	if s.received != nil && !s.deaf {
		s.received(text)
	}
	return nil
}

func (s *server) Listen(ctx context.Context, _ string, listening func(), received func(string)) error {
	s.mu.Lock()
	s.listens++
	if s.down != nil {
		defer s.mu.Unlock()
		return s.down
	}
	s.received = received
	s.mu.Unlock()
	defer s.set(func() { s.received = nil })
	if !s.mute {
		listening()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-s.lost:
		return err
	}
}

func (s *server) set(change func()) { s.mu.Lock(); defer s.mu.Unlock(); change() }

// said returns what was sent but for checks, without the sender, and when since start.
func (s *server) said(start time.Time) (about []string, after []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, text := range s.texts {
		if _, rest, _ := strings.Cut(text, " "); rest != aboutNothing {
			about, after = append(about, rest), append(after, s.times[i].Sub(start))
		}
	}
	return about, after
}

// bubble is a notifier that runs on virtual time.
type bubble struct {
	*Notifier
	server *server
	run    func()
	stop   context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	log   bytes.Buffer
	wakes []wakeup.Wake // by others
}

// Write takes a line of the log.
func (b *bubble) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.log.Write(line)
}

func (b *bubble) woken(w wakeup.Wake) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.Remote {
		b.wakes = append(b.wakes, w)
	}
}

// others returns what others woke us with since it was last called.
func (b *bubble) others() []wakeup.Wake {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	wakes := b.wakes
	b.wakes = nil
	return wakes
}

// logged counts the lines of the log that contain a text.
func (b *bubble) logged(text string) int {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.log.String(), text)
}

func start(t *testing.T, s *server, listener Listener) *bubble {
	t.Helper()
	b := newBubble(t, s, listener)
	b.run()
	return b
}

func newBubble(t *testing.T, s *server, listener Listener) *bubble {
	t.Helper()
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	b := &bubble{server: s, done: make(chan struct{})}
	b.Notifier = newNotifier("c", registry, NotifierConfig{Listener: listener, Logger: slog.New(slog.NewTextHandler(b, nil))}, s.send)
	stopListening := access.Wakeups(registry).Listen(b.woken)
	b.run = func() {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(b.done)
			if err := b.Run(ctx); err != nil {
				t.Errorf("run: got %v, want nil", err)
			}
		}()
		b.stop = func() { cancel(); <-b.done; stopListening() }
		synctest.Wait()
	}
	return b
}

// produced wakes this process, as a producer does after the commit.
func (b *bubble) produced(wakes ...wakeup.Wake) {
	if len(wakes) == 0 {
		wakes = []wakeup.Wake{{PayloadTypes: []string{"order.placed"}}}
	}
	for _, w := range wakes {
		access.Wakeups(b.registry).Send(w)
	}
	synctest.Wait()
}

// The slower the server, the more commits share a notification.
func TestNotifyingTakesAFifthOfTheTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.takes = time.Millisecond
		b := start(t, s, nil)
		begin := time.Now()
		for range 24 { // every ms from 0 to 23
			b.produced()
			<-time.After(time.Millisecond)
		}
		<-time.After(time.Second)
		b.produced()
		b.stop()
		about, after := s.said(begin)
		ms := time.Millisecond
		if want := []time.Duration{0, 5 * ms, 10 * ms, 15 * ms, 20 * ms, 25 * ms, 1024 * ms}; !slices.Equal(after, want) {
			t.Errorf("notified after: got %v, want %v", after, want)
		}
		s.takes = time.Second
		b = start(t, s, nil)
		b.produced()
		<-time.After(s.takes)
		b.produced()
		<-time.After(2 * maxPause)
		if _, after := s.said(begin); len(after) != 9 {
			t.Errorf("after a notification of a second: got %d in all, want 9 once %s have passed", len(after), maxPause)
		}
		b.stop()
		if slices.ContainsFunc(about, func(s string) bool { return s != "messages" }) {
			t.Errorf("notifications: got %q, want all about messages", about)
		}
	})
}

func TestOthersAreToldOfWhatWasCommittedBeforeRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		b := newBubble(t, s, nil)
		b.produced()
		b.run()
		if about, _ := s.said(time.Now()); !slices.Equal(about, []string{"messages"}) {
			t.Errorf("notifications right after the start: got %q, want one", about)
		}
		b.stop()
	})
}

func TestOthersAreToldWhatToLookFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		wakes []wakeup.Wake
		want  []string
	}{
		"messages":                   {[]wakeup.Wake{{}}, []string{"messages"}},
		"schedules":                  {[]wakeup.Wake{{Schedules: true}}, []string{"schedules"}},
		"events":                     {[]wakeup.Wake{{Events: true}}, []string{"events"}},
		"what may never commit":      {[]wakeup.Wake{{Expected: true}, {Schedules: true, Expected: true}}, nil},
		"what others have sent":      {[]wakeup.Wake{{Remote: true}, {Schedules: true, Remote: true}}, nil},
		"both, together in a window": {[]wakeup.Wake{{}, {Schedules: true}, {}}, []string{"messages", "messages schedules"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				b := start(t, s, nil)
				for _, w := range test.wakes {
					b.produced(w)
				}
				<-time.After(time.Second)
				b.stop()
				if got, _ := s.said(time.Now()); !slices.Equal(got, test.want) {
					t.Errorf("notified of %q, want %q", got, test.want)
				}
			})
		})
	}
}

func TestAStopSendsWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		b := start(t, s, nil)
		b.produced()
		b.produced() // has to wait for the window
		b.stop()
		if got, _ := s.said(time.Now()); len(got) != 2 {
			t.Errorf("notified %d times, want 2", len(got))
		}
	})
}

func TestReceivedNotifications(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string // {own} is the notifier's id
		want []wakeup.Wake
	}{
		"messages of another process":  {"other messages", []wakeup.Wake{{Remote: true}}},
		"schedules of another process": {"other schedules", []wakeup.Wake{{Remote: true, Schedules: true}}},
		"both":                         {"other messages schedules", []wakeup.Wake{{Remote: true}, {Remote: true, Schedules: true}}},
		"events of another process":    {"other events", []wakeup.Wake{{Remote: true, Events: true}}},
		"a check of another process":   {"other check", nil},
		"our own":                      {"{own} messages", nil},
		"of a later version":           {"other rumours messages", []wakeup.Wake{{Remote: true}}},
		"nothing":                      {"", nil},
		"somebody else's":              {"messages", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				b := start(t, s, s)
				b.others() // of the first check
				if err := s.send(t.Context(), strings.ReplaceAll(test.text, "{own}", b.id)); err != nil {
					t.Fatal(err)
				}
				b.stop()
				woken := b.others()
				if !slices.EqualFunc(woken, test.want, func(x, y wakeup.Wake) bool {
					return x.Remote == y.Remote && x.Schedules == y.Schedules && x.Events == y.Events && x.Expected == y.Expected &&
						len(x.PayloadTypes) == 0
				}) {
					t.Errorf("woken with %+v, want %+v", woken, test.want)
				}
			})
		})
	}
}

func TestADeafListenerIsNoticedLoggedOnceAndReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		b := start(t, s, s)
		if h := b.Health(); !h.Ready || h.Err != nil {
			t.Errorf("health at first: got %+v, want listening", h)
		}
		b.produced() // what is heard of that proves nothing later
		s.set(func() { s.deaf = true })
		<-time.After(checkEvery + checkTimeout)
		synctest.Wait()
		if h := b.Health(); h.Ready || !errors.Is(h.Err, errUnheard) {
			t.Errorf("health once deaf: got %+v, want errUnheard", h)
		}
		<-time.After(time.Hour)
		if got := b.logged("level=WARN"); got != 1 {
			t.Errorf("complaints: got %d, want 1", got)
		}
		s.mu.Lock()
		if limit := int(time.Hour / (retryMax / 2)); s.listens > limit || s.listens < 60 {
			t.Errorf("listened %d times in an hour, want 60 to %d", s.listens, limit)
		}
		s.mu.Unlock()
		s.set(func() { s.deaf = false })
		b.others()
		<-time.After(2 * retryMax)
		if got := b.logged("received again"); got != 1 {
			t.Errorf("recoveries logged: got %d, want 1", got)
		}
		if got := len(b.others()); got != 3 {
			t.Errorf("woken %d times, want 3: to look for what went unheard", got)
		}
		if h := b.Health(); !h.Ready || h.Err != nil {
			t.Errorf("health at last: got %+v, want listening", h)
		}
		b.stop()
		if b.Health().Ready {
			t.Error("health after the stop: got listening, want not")
		}
	})
}

// A notifier that only sends has nothing to hear.
func TestASenderIsReadyWhileItRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newServer(), nil)
		if h := b.Health(); !h.Ready || h.Err != nil {
			t.Errorf("health: got %+v, want it ready", h)
		}
		b.stop()
		if b.Health().Ready {
			t.Error("health after the stop: got it ready, want not")
		}
	})
}

func TestAListenerThatComesAndGoesDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		b := start(t, s, s)
		for range 120 { // a minute
			<-time.After(500 * time.Millisecond)
			s.lost <- errors.New("terminated")
			<-time.After(2 * retryMin)
			synctest.Wait()
			if !b.Health().Ready {
				t.Fatal("health: got deaf, want a new connection at once, since the last one worked")
			}
		}
		b.stop()
		if got := b.logged("level=WARN"); got > 2 {
			t.Errorf("complaints in a minute: got %d, want 2 at most", got)
		}
	})
}

// TestErrorsAreLoggedCut has the listener fail with one of some megabytes.
func TestErrorsAreLoggedCut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		b := start(t, s, s)
		s.lost <- errors.New(strings.Repeat("x", 5<<20))
		if warned, cut := b.logged("level=WARN"), b.logged("xxx"); warned != 1 || cut > 10<<10 {
			t.Errorf("log: got %d warnings with %d times xxx, want one of some KB", warned, cut)
		}
		b.stop()
	})
}

func TestWhyNothingIsHeard(t *testing.T) {
	t.Parallel()
	refused := errors.New("connection refused")
	for name, test := range map[string]struct {
		prepare func(*server)
		want    error
	}{
		"the server refuses":     {func(s *server) { s.down = refused }, refused},
		"the listener hangs":     {func(s *server) { s.mute = true }, errNotListening},
		"the listener just ends": {func(s *server) { close(s.lost) }, errEnded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				test.prepare(s)
				b := start(t, s, s)
				<-time.After(checkTimeout)
				synctest.Wait()
				if h := b.Health(); h.Ready || !errors.Is(h.Err, test.want) {
					t.Errorf("health: got %+v, want %v", h, test.want)
				}
				b.stop()
			})
		})
	}
}

func TestNotificationsThatCannotBeSentAreNoHarm(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.down = errors.New("read-only")
		b := start(t, s, nil)
		for range 100 {
			b.produced()
			<-time.After(20 * time.Millisecond)
		}
		if err := b.Health().Err; !errors.Is(err, s.down) {
			t.Errorf("health: got %v, want %v", err, s.down)
		}
		s.set(func() { s.down = nil })
		b.produced()
		b.stop()
		if warned, good := b.logged("level=WARN"), b.logged("notified again"); warned != 1 || good != 1 {
			t.Errorf("got %d complaints and %d recoveries, want 1 of each", warned, good)
		}
		if err := b.Health().Err; err != nil {
			t.Errorf("health: got %v, want none", err)
		}
	})
}

func TestOneRunAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := start(t, newServer(), nil)
		if err := b.Run(t.Context()); err == nil {
			t.Error("a second run: got nil, want an error")
		}
		b.stop()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := b.Run(ctx); err != nil {
			t.Errorf("a run after the first: got %v, want nil", err)
		}
	})
}

// That a check cannot be sent says nothing of what is heard.
func TestACheckThatCannotBeSentKeepsTheListener(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		b := start(t, s, s)
		defer b.stop()
		s.set(func() { s.down = errors.New("no connection is free") })
		<-time.After(checkEvery + 2*checkTimeout)
		if h := b.Health(); !h.Ready || h.Err == nil {
			t.Errorf("health while nothing can be sent: got %+v, want to listen, and why nothing is sent", h)
		}
		s.set(func() { s.down = nil })
		<-time.After(2 * checkTimeout)
		synctest.Wait()
		if h := b.Health(); !h.Ready || h.Err != nil || s.listens != 1 {
			t.Errorf("health afterwards: got %+v after %d connections, want all to be well on the first", h, s.listens)
		}
	})
}

// listenerFunc is a Listener of the application that never listens.
type listenerFunc func(ctx context.Context) error

func (l listenerFunc) Listen(ctx context.Context, _ string, _ func(), _ func(string)) error {
	return l(ctx)
}

// mute is an error whose methods panic if it is a nil pointer.
type mute struct{ cause error }

func (m *mute) Error() string { return m.cause.Error() }
func (m *mute) Unwrap() error { return m.cause }

// runFor runs a notifier with the listener for a minute, and returns how long Run took after that.
func runFor(t *testing.T, l Listener) (n *Notifier, after time.Duration) {
	t.Helper()
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	n = newNotifier("c", registry, NotifierConfig{Listener: l, Logger: slog.New(slog.DiscardHandler)},
		func(context.Context, string) error { return nil })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	start := time.Now()
	if err := n.Run(ctx); err != nil {
		t.Error(err)
	}
	return n, time.Since(start) - time.Minute
}

// TestAListenerThatPanicsIsCalledAgain: its panic, or an error whose methods panic, is an error of listening.
func TestAListenerThatPanicsIsCalledAgain(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() error{
		"panic": func() error { panic(errors.New("a nil connection")) },
		"error": func() error { return (*mute)(nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				n, _ := runFor(t, listenerFunc(func(context.Context) error { calls++; return fail() }))
				if err := n.Health().Err; calls < 2 || err == nil || err.Error() == "" {
					t.Errorf("got %d calls and error %v, want several calls and an error", calls, err)
				}
			})
		})
	}
}

// TestAListenerThatHangsDoesNotHoldRun, and is not called again before it has returned.
func TestAListenerThatHangsDoesNotHoldRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		release := make(chan struct{})
		_, after := runFor(t, listenerFunc(func(context.Context) error { calls.Add(1); <-release; return errors.New("over") }))
		if got := calls.Load(); after > 2*time.Second || got != 1 {
			t.Errorf("Run returned after %s with %d calls of the listener, want at most 2 s and 1 call", after, got)
		}
		close(release)
		synctest.Wait()
	})
}
