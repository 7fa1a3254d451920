//go:build unix

package chaos

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// RingConfig makes a service one of several that each pass jobs on to the next.
type RingConfig struct {
	Stream    string // that it reads
	Next      string // that the next one reads
	By        string // the transactional consumer that passes jobs on
	Retention time.Duration
}

// Hop is a Job on its way to another service.
type Hop struct{ Job }

// PayloadType implements bus.Payload.
func (Hop) PayloadType() string { return "chaos.hop" }

// route publishes hops as jobs.
func (c RingConfig) route() relay.Route {
	return relay.To[Hop](c.Next, relay.MapPayload(func(h Hop) (Job, error) { return h.Job, nil }))
}

func (c RingConfig) retention() (options []inbox.Option) {
	if c.Retention > 0 {
		options = append(options, inbox.DeduplicationWindow(c.Retention))
	}
	return options
}

// passOn produces the job for the next service, if there is one that has not had it.
func (r *Recorder) passOn(ctx context.Context, tx bun.Tx, job Job) error {
	if job.Left == 0 {
		return nil
	}
	job.Left--
	_, err := r.producer.Produce(ctx, tx, Hop{job})
	return err
}

const (
	weighed = ".heap"
	// weighEvery is how often a worker writes down how large its heap is.
	weighEvery = 2 * time.Second
)

// weigh writes down, until ctx ends, how large the heap is of what is in use.
func (r *Recorder) weigh(ctx context.Context) error {
	file, err := os.Create(filepath.Join(r.dir, r.worker+weighed))
	if err != nil {
		return fmt.Errorf("chaos: weigh: %w", err)
	}
	defer file.Close()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(weighEvery):
		}
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		if _, err := fmt.Fprintln(file, stats.HeapAlloc); err != nil {
			return fmt.Errorf("chaos: weigh: %w", err)
		}
	}
}

// Heap is how large the worker's heap was, again and again.
func (w *Worker) Heap() (sizes []int, err error) {
	text, err := os.ReadFile(filepath.Join(w.config.Ledger, w.config.Name+weighed))
	if err != nil {
		return nil, fmt.Errorf("chaos: heap: %w", err)
	}
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		size, err := strconv.Atoi(lines.Text())
		if err != nil {
			return nil, fmt.Errorf("chaos: heap: %w", err)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}
