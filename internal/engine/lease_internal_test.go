package engine

// An internal test: no external test can have a lease end before the keeper notices.

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

type leased struct{}

func (leased) PayloadType() string { return "leased" }

// unreachable is a database without connections.
type unreachable struct{}

func (unreachable) Connect(context.Context) (driver.Conn, error) {
	return nil, errors.New("unreachable")
}

func (unreachable) Driver() driver.Driver { return nil }

// TestNoHandlerBeginsAfterItsLease or that of its slot, as it would in a process that stood still for
// longer: its messages and the slot may be another's by then.
func TestNoHandlerBeginsAfterItsLease(t *testing.T) {
	t.Parallel()
	began := make(chan string, 10)
	consumers := map[string]bus.Consumer{
		"one": bus.Consume("one", func(context.Context, leased) error {
			began <- "one"
			return nil
		}, bus.GlobalConcurrency(1)),
		"many": bus.ConsumeBatch("many", func(context.Context, []leased) error {
			began <- "many"
			return nil
		}, bus.GlobalConcurrency(1)),
	}
	for name, consumer := range consumers {
		for _, over := range []string{"", "lease", "slot"} {
			runs, results := 0, runLeased(t, consumer, over)
			select {
			case <-began:
				runs = 1
			default:
			}
			want, outcome := 1, store.Done
			if over != "" {
				want, outcome = 0, store.Release
			}
			if runs != want || len(results) != 2 || results[0].Outcome != outcome || results[1].Outcome != outcome {
				t.Errorf("%s, over %q: got %d runs and %+v, want %d runs and both messages with outcome %v",
					name, over, runs, results, want, outcome)
			}
			for len(began) > 0 {
				<-began
			}
		}
	}
}

// runLeased runs two messages of a claim and returns their results. over is what has ended: the lease of the claim or the slot.
func runLeased(t *testing.T, consumer bus.Consumer, over string) []store.Result {
	t.Helper()
	conns := sql.OpenDB(unreachable{})
	defer func() { _ = conns.Close() }()
	registry, err := bus.NewRegistry(consumer)
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProcessor(bun.NewDB(conns, pgdialect.New()), registry, ProcessorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r := p.newRun(t.Context())
	until := map[string]time.Time{"lease": time.Now().Add(time.Hour), "slot": time.Now().Add(time.Hour)}
	until[over] = time.Now()
	limit := r.dispatcher.limiters.all[0]
	limit.running, limit.slots[1] = 1, until["slot"]
	l := r.ledger.open(r.work, 1, 2, until["lease"])
	tasks := []*task{new(task), new(task)}
	for i, c := range tasks {
		row := store.Message{
			ID: int64(i + 1), MessageID: uuid.Must(uuid.NewV7()), ConsumerType: consumer.Name(), PayloadType: "leased", Payload: []byte("{}"),
		}
		newTask(c, &row, r.dispatcher.catalog.consumers[0], l, time.Now())
	}
	w := newWorker(&r.executor)
	if r.dispatcher.catalog.consumers[0].group > 1 {
		w.runGroup(tasks)
	} else {
		w.process(tasks[0])
		w.process(tasks[1])
	}
	w.isolate.Dismiss()
	r.executor.pool.close()
	r.workers.running.Wait()
	b, _ := r.ledger.collect(time.Now(), true)
	if len(b.finished) == 1 {
		return b.whole[0]
	}
	return b.results
}
