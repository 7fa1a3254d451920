//go:build unix

package chaos_test

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

// closers are what must not outlive this process: servers, mounts, directories. A
// test's cleanup closes them, and a signal, which runs no cleanups, does so, too.
type closers struct {
	mu   sync.Mutex
	list []*closer
}

type closer struct {
	once  sync.Once
	close func()
}

var open closers

// add registers what closes something, and returns how to do so now. It is called
// once, from whatever goroutine comes first.
func (c *closers) add(close func()) (now func()) {
	one := &closer{close: close}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, one)
	return func() {
		one.once.Do(one.close)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.list = slices.DeleteFunc(c.list, func(other *closer) bool { return other == one })
	}
}

// all closes everything, the last first.
func (c *closers) all() {
	c.mu.Lock()
	list := slices.Clone(c.list)
	c.mu.Unlock()
	slices.Reverse(list)
	for _, one := range list {
		one.once.Do(one.close)
	}
}

// atEnd closes something when the bar has ended, or when the process is told to. It
// must not count on the test's goroutine, which may still be at work.
func (b *bar) atEnd(close func()) { b.Cleanup(open.add(close)) }

// guarded runs tests that leave nothing behind when they are interrupted.
type guarded struct{ *testing.M }

func (g guarded) Run() int {
	var watch sync.WaitGroup
	ended := make(chan struct{})
	watch.Go(func() { untilEnded(ended) })
	defer watch.Wait()
	defer close(ended)
	return g.M.Run()
}

// untilEnded waits for the end, or brings it about: at a signal, or when the process
// that started this one has gone, which `go test` does at a signal without a word.
func untilEnded(ended <-chan struct{}) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	parent, tick := os.Getppid(), time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case s := <-signals:
			die(s.String(), "")
		case <-tick.C:
			if os.Getppid() != parent {
				die("whoever started it has gone", "")
			}
		}
	}
}

// die ends the process in order, save for the tests.
func die(why, more string) {
	fmt.Fprintf(os.Stderr, "chaos: interrupted: %s\n%s", why, more)
	open.all()
	os.Exit(1)
}

// stacks are those of all goroutines.
func stacks() string {
	text := make([]byte, 1<<20)
	return string(text[:runtime.Stack(text, true)])
}
