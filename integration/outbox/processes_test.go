package outbox_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// childVariable makes this test binary act as a worker process on the database
// whose DSN it holds.
const childVariable = "ASYNCMONOLITH_TEST_CHILD"

// runChild waits for a line on its standard input, runs a processor until the
// input ends, and prints what it consumed.
func runChild() int {
	conns, err := sql.Open("pgx", os.Getenv(childVariable))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer conns.Close()
	var mu sync.Mutex
	var consumed []string
	record := func(ctx context.Context, o order) error {
		m, _ := bus.MessageFromContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		consumed = append(consumed, m.Consumer+" "+o.ID)
		return nil
	}
	registry, err := bus.NewRegistry(bus.Consume("one", record), bus.Consume("two", record))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	processor, err := outbox.NewProcessor(bun.NewDB(conns, pgdialect.New()), registry, outbox.ProcessorConfig{Fetchers: 4})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready")
	if _, err := input.ReadString('\n'); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, input)
		stop()
	}()
	if err := processor.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(strings.Join(consumed, "\n"))
	return 0
}

// child is a worker process.
type child struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *bufio.Reader
}

func startChild(t *testing.T, dsn string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+dsn)
	cmd.Stderr = os.Stderr
	input := testapp.Must[io.WriteCloser](t)(cmd.StdinPipe())
	output := testapp.Must[io.ReadCloser](t)(cmd.StdoutPipe())
	testapp.OK(t, cmd.Start())
	c := &child{cmd: cmd, input: input, output: bufio.NewReader(output)}
	if line, err := c.output.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("child: got %q, %v, want ready", line, err)
	}
	return c
}

// finish ends the child and returns what it consumed.
func (c *child) finish(t *testing.T) []string {
	t.Helper()
	if err := c.input.Close(); err != nil {
		t.Error(err)
	}
	text, err := io.ReadAll(c.output)
	if err != nil {
		t.Error(err)
	}
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("child: %v", err)
	}
	return strings.Fields(strings.ReplaceAll(string(text), " ", ":"))
}

func TestTwoProcessesShareTheWork(t *testing.T) {
	t.Parallel()
	const messages = 5_000
	dsn := testdb.PostgresDSN(t)
	var none atomic.Int64
	a := testapp.New(t, testdb.OpenPostgres(t, dsn), testapp.Counting("one", &none), testapp.Counting("two", &none))
	for start := 0; start < messages; start += 1000 {
		items := make([]outbox.Item, 1000)
		for i := range items {
			items[i] = outbox.Item{Payload: order{ID: fmt.Sprint(start + i)}}
		}
		testapp.OK(t, testapp.Second(a.Producer.ProduceMany(t.Context(), a.DB, items...)))
	}
	children := []*child{startChild(t, dsn), startChild(t, dsn)}
	for _, c := range children { // the start circuit
		testapp.OK(t, testapp.Second(io.WriteString(c.input, "go\n")))
	}
	testapp.Eventually(t, "everything is consumed", a.Empty)
	times := make(map[string]int, 2*messages)
	for i, c := range children {
		consumed := c.finish(t)
		if len(consumed) == 0 {
			t.Errorf("process %d consumed nothing", i)
		}
		for _, key := range consumed {
			times[key]++
		}
	}
	if len(times) != 2*messages {
		t.Errorf("consumed %d different messages, want %d", len(times), 2*messages)
	}
	for key, n := range times {
		if n != 1 {
			t.Errorf("%s was consumed %d times, want once", key, n)
		}
	}
}

func TestABlockedHandlerDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var done atomic.Int64
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, o order) error {
			if o.ID == "blocks" {
				testapp.Eventually(t, "1,000 later messages are done", func() bool { return done.Load() >= 1000 })
				return nil
			}
			done.Add(1)
			return nil
		}, bus.Timeout(time.Minute)))
		a.Produce(order{ID: "blocks"})
		a.ProduceMany(1000)
		r := a.Start(testapp.Fast())
		testapp.Eventually(t, "everything is consumed", a.Empty)
		r.MustStop()
		if n := done.Load(); n != 1000 {
			t.Errorf("runs: got %d, want 1,000: no lease was lost", n)
		}
	})
}

// Not parallel: the last results have 0.4 s to be written, which SQLite under the
// race detector does not get beside a hundred other tests.
// Promise: graceful-stop
func TestGracefulStopWithAHundredInFlight(t *testing.T) {
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var started, finished atomic.Int64
		finish := make(chan struct{})
		a := testapp.New(t, db, bus.Consume("c", func(ctx context.Context, o order) error {
			started.Add(1)
			wait := finish
			if o.N%2 == 1 {
				wait = nil // these never finish by themselves
			}
			select {
			case <-wait:
				finished.Add(1)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, bus.Timeout(time.Minute)))
		a.ProduceMany(150)
		config := testapp.Fast()
		config.Concurrency, config.DrainTimeout = 100, 2*time.Second
		r := a.Start(config)
		testapp.Eventually(t, "100 are in flight", func() bool { return started.Load() == 100 })
		r.Stop(nil)
		close(finish)
		if err := r.Wait(); err != nil {
			t.Errorf("run: got %v, want a clean drain", err)
		}
		rows := a.Pending()
		if got := 150 - len(rows); got != int(finished.Load()) {
			t.Errorf("removed: got %d, want the %d that finished", got, finished.Load())
		}
		for _, m := range rows {
			if m.Attempts != 0 || m.Crashes != 0 {
				t.Errorf("message %d: got %d attempts and %d crashes, want none", m.ID, m.Attempts, m.Crashes)
			}
		}
		if n := a.Count("SELECT count(*) FROM message_claims"); n != 0 {
			t.Errorf("claims left: got %d, want none: everything is available at once", n)
		}
	})
}
