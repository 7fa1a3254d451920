package older_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestLimitsAreUnknown: an older processor runs beside what has all slots, and takes none.
func TestLimitsAreUnknown(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		release := make(chan struct{})
		runs := journal{outcome: func(context.Context, job) error { <-release; return nil }}
		names := []string{"limited", "shared"}
		n := newNewer(t, d, &runs, runs.consume("limited", bus.Limit(1)), runs.consume("shared", bus.LimitShared("both", 1)))
		p := startOlder(t, d, names...)
		n.Produce(job{N: 1, Blocks: true})
		r := n.Start(patient())
		testapp.Eventually(t, "the newer program runs both", func() bool { return r.Stats().Running == 2 })
		n.Produce(job{N: 2, Blocks: true})
		p.do(command{Do: "run"})
		testapp.Eventually(t, "the older program runs both, too", func() bool { return p.begun() == 2 })
		if slots := n.Count("SELECT count(*) FROM message_slots WHERE n > 0"); slots != 2 || r.Stats().Running != 2 {
			t.Errorf("got %d slots and %d runs, want those of the newer program", slots, r.Stats().Running)
		}
		close(release)
		for range names {
			p.do(command{Do: "release"})
		}
		testapp.Eventually(t, "all is done", n.Empty)
		p.do(command{Do: "stop"})
		r.MustStop()
		for _, name := range names {
			wantNumbers(t, name+" in the newer program", runs.of(name), 1)
			wantNumbers(t, name+" in the older program", p.done(name), 2)
		}
	}, everywhere()...)
}

// TestRatesAreUnknown: an older processor goes on when a rate is spent.
func TestRatesAreUnknown(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		n, p := newNewer(t, d, &runs, runs.consume("c", bus.Rate(1, time.Hour, 1))), startOlder(t, d, "c")
		n.produce([]int{1, 2, 3})
		wantNumbers(t, "the newer program ran", n.drain("c"), 1)
		wantNumbers(t, "the older program ran", p.drain(), 2, 3)
	}, everywhere()...)
}

// TestPrioritiesAreUnknown: an older processor goes by when messages are due.
func TestPrioritiesAreUnknown(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		n, p := newNewer(t, d, &runs, runs.consume("c", bus.Priorities(time.Hour))), startOlder(t, d, "c")
		produce := func() {
			n.produce([]int{1})
			n.produce([]int{2}, outbox.Priority(bus.Urgent))
		}
		produce()
		wantNumbers(t, "the older program ran", p.drain(), 1, 2)
		produce()
		wantNumbers(t, "the newer program ran", n.drain("c"), 2, 1)
	}, notMariaDB()...)
}

// TestBatchesAreUnknown: an older processor runs what waits for a batch one by one.
func TestBatchesAreUnknown(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		calls := 0
		n := newNewer(t, d, &runs, bus.ConsumeBatch("c", func(ctx context.Context, jobs []job) error {
			calls++
			return runs.run(ctx, "c", jobs...)
		}))
		p := startOlder(t, d, "c")
		n.ProduceJobs(1, 2)
		if ran := p.do(command{Do: "drain"}); ran != 2 {
			t.Errorf("the older program: got %d runs, want one for each message", ran)
		}
		wantNumbers(t, "the older program ran", p.done("c"), 1, 2)
		n.ProduceJobs(3, 4)
		p.do(command{Do: "produce", Jobs: []job{{N: 5}}})
		got := n.drain("c")
		slices.Sort(got)
		if wantNumbers(t, "the newer program ran", got, 3, 4, 5); calls != 1 {
			t.Errorf("the newer program: got %d calls, want 1", calls)
		}
	}, everywhere()...)
}

// note is a payload that the older program does not know.
type note struct{ N int }

func (note) PayloadType() string { return "note" }

// TestRawConsumersOfSeveralTypes: an older processor takes those of the type that it knows, and a
// newer one what an older producer writes.
func TestRawConsumersOfSeveralTypes(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var types []string
		n := newNewer(t, d, &journal{}, bus.ConsumeRaw("c", func(_ context.Context, batch []*bus.Message) error {
			for _, m := range batch {
				types = append(types, m.PayloadType)
			}
			return nil
		}, []string{"note", "job"}))
		p := startOlder(t, d, "c")
		n.Produce(note{N: 1})
		n.ProduceJobs(2)
		wantNumbers(t, "the older program ran", p.drain(), 2)
		p.do(command{Do: "produce", Jobs: []job{{N: 3}}})
		n.drain("c")
		slices.Sort(types)
		if !slices.Equal(types, []string{"job", "note"}) || !n.Empty() {
			t.Errorf("the newer program got %v and left %+v, want a job and a note", types, n.Pending())
		}
	}, everywhere()...)
}

// TestGatesAndBreakersAreUnknown: an older processor goes on where a newer one waits, and what
// fails there costs attempts.
func TestGatesAndBreakersAreUnknown(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		away := errors.New("nobody is there")
		runs := journal{outcome: func(context.Context, job) error { return away }}
		var gate outbox.Gate
		n := newNewer(t, d, &runs, runs.consume("gated", outbox.Gated(&gate)),
			runs.consume("broken", bus.Breaker(bus.BreakerConfig{Min: 1, Cooldown: time.Minute}), bus.MaxAttempts(1000)))
		p := startOlder(t, d, "gated", "broken")
		_ = gate.Close(away)
		r := n.Start(patient())
		n.ProduceJobs(1)
		testapp.Eventually(t, "both are closed, and nothing is claimed", func() bool {
			return len(r.Health().Closed) == 2 && n.Count("SELECT count(*) FROM message_claims") == 0
		})
		p.do(command{Do: "run"})
		testapp.Eventually(t, "the older program has done both", n.Empty)
		n.Produce(job{N: 2, Blocks: true})
		for range 2 {
			p.do(command{Do: "release", Error: "nobody is there"})
		}
		testapp.Eventually(t, "both have failed, and cost attempts", func() bool {
			return n.Count("SELECT count(*) FROM consumer_messages WHERE attempts = 1") == 2
		})
		if closed := r.Health().Closed; len(closed) != 2 {
			t.Errorf("got %+v closed, want both: what the older program has done opens nothing", closed)
		}
		p.do(command{Do: "stop"})
		r.MustStop()
	}, everywhere()...)
}

// TestDeadlinesAreUnknown: an older processor runs what is late, and what an older program
// requeues keeps its deadline.
func TestDeadlinesAreUnknown(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		runs := journal{outcome: func(_ context.Context, j job) error {
			if j.N == 3 {
				return bus.Permanent(errors.New("no luck"))
			}
			return nil
		}}
		n, p := newNewer(t, d, &runs, runs.consume("c")), startOlder(t, d, "c")
		past := time.Now().Add(-time.Hour)
		n.produce([]int{1}, outbox.DeliverBy(past, bus.Discarded))
		wantNumbers(t, "the older program ran", p.drain(), 1)
		n.produce([]int{2}, outbox.DeliverBy(past, bus.Poisoned))
		for range 2 {
			wantNumbers(t, "the newer program ran", n.drain("c"))
			if requeued := p.do(command{Do: "requeue"}); requeued != 1 {
				t.Fatalf("got %d requeued, want the late one", requeued)
			}
		}
		wantNumbers(t, "the older program ran", p.drain(), 2)

		n.produce([]int{3}, outbox.DeliverBy(time.Now().Add(time.Hour), bus.Discarded))
		n.drain("c")
		n.Exec("UPDATE poisoned_messages SET headers = ?", `{"asyncmonolith-deliver-by":"`+past.UTC().Format(time.RFC3339)+` discarded"}`)
		if requeued := p.do(command{Do: "requeue"}); requeued != 1 {
			t.Fatalf("got %d requeued, want what has failed", requeued)
		}
		n.drain("c")
		if poisoned := n.Poisoned(); len(poisoned) > 0 || !n.Empty() {
			t.Errorf("got %+v poisoned and %+v pending, want it discarded", poisoned, n.Pending())
		}
	}, everywhere()...)
}

// TestDeclaredConsumers: what a newer producer writes for a consumer that only an older program
// has is run there. An older producer writes nothing for those that it does not have.
func TestDeclaredConsumers(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		var runs journal
		n := newNewer(t, d, &runs, runs.consume("new"), bus.Declare[job]("c"))
		p := startOlder(t, d, "c")
		n.ProduceJobs(1)
		p.do(command{Do: "produce", Jobs: jobs(2, 2)})
		wantNumbers(t, "the older program ran", p.drain(), 1, 2)
		wantNumbers(t, "the newer program ran", n.drain("new"), 1)
	}, everywhere()...)
}

// TestStopIsUnknown: an older processor goes on with a run that is to be stopped. What it has done
// is too late, and what has failed does not run again.
func TestStopIsUnknown(t *testing.T) {
	on(t, func(t *testing.T, d database) {
		n, p := newNewer(t, d, &journal{}, bus.Declare[job]("c")), startOlder(t, d, "c")
		p.do(command{Do: "run"})
		for want, outcome := range map[outbox.Stopped]string{outbox.StopTooLate: "", outbox.StopCancelled: "no luck"} {
			before := p.begun()
			n.Produce(job{N: 1, Blocks: true})
			testapp.Eventually(t, "it runs", func() bool { return p.begun() > before })
			type answer struct {
				stopped outbox.Stopped
				err     error
			}
			answered := make(chan answer, 1)
			go func() {
				stopped, err := n.Admin().Stop(t.Context(), d.db, n.ids()[0])
				answered <- answer{stopped, err}
			}()
			testapp.Eventually(t, "it is asked", func() bool { return n.Count("SELECT count(*) FROM message_stops") == 1 })
			p.do(command{Do: "release", Error: outcome})
			if got := <-answered; got.err != nil || got.stopped != want {
				t.Errorf("a run that ends with %q: got %v and %q, want %q", outcome, got.err, got.stopped, want)
			}
			if left := n.Count("SELECT count(*) FROM message_stops"); left != 0 || !n.Empty() {
				t.Errorf("got %d requests and %+v left, want nothing", left, n.Pending())
			}
		}
		p.do(command{Do: "stop"})
	}, everywhere()...)
}
