package older_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// newer is an application of the present version, and what its consumers have done.
type newer struct {
	*testapp.App
	processor *outbox.Processor
	runs      *journal
}

// journal notes runs by the present version.
type journal struct {
	mu   sync.Mutex
	done map[string][]int // the numbers of jobs by consumer
	// outcome is asked for what becomes of a run; nil is that it is done.
	outcome func(ctx context.Context, j job) error
}

// consume is a consumer of jobs.
func (j *journal) consume(name string, options ...bus.ConsumerOption) bus.Consumer {
	return bus.Consume(name, func(ctx context.Context, job job) error { return j.run(ctx, name, job) }, options...)
}

func (j *journal) run(ctx context.Context, name string, jobs ...job) error {
	for _, job := range jobs {
		if j.outcome != nil {
			if err := j.outcome(ctx, job); err != nil {
				return err
			}
		}
		j.mu.Lock()
		if j.done == nil {
			j.done = make(map[string][]int)
		}
		j.done[name] = append(j.done[name], job.N)
		j.mu.Unlock()
	}
	return nil
}

// of returns what was done for a consumer.
func (j *journal) of(name string) []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.done[name])
}

// newNewer makes an application, and brings the tables up to date.
func newNewer(t *testing.T, d database, runs *journal, consumers ...bus.Consumer) *newer {
	t.Helper()
	a := testapp.New(t, d.db, consumers...)
	return &newer{a, testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(d.db, a.Registry, patient())), runs}
}

// patient is a configuration for runs that wait for an older program.
func patient() outbox.ProcessorConfig {
	config := testapp.Fast()
	config.ConsumerTimeout = time.Minute
	return config
}

// produce produces jobs with these numbers, one after the other.
func (n *newer) produce(numbers []int, options ...outbox.Option) {
	n.Helper()
	for _, number := range numbers {
		n.Produce(job{N: number}, options...)
	}
}

// ProduceJobs is produce without options.
func (n *newer) ProduceJobs(numbers ...int) { n.Helper(); n.produce(numbers) }

// drain runs what is due, and returns what was done for a consumer.
func (n *newer) drain(name string) []int {
	n.Helper()
	before := len(n.runs.of(name))
	for ran := true; ran; {
		ran = testapp.Must[bool](n.T)(n.processor.Step(n.Context()))
	}
	return n.runs.of(name)[before:]
}

// ids are the row ids of what is pending.
func (n *newer) ids() (ids []int64) {
	for _, row := range n.Pending() {
		ids = append(ids, row.ID)
	}
	return ids
}
