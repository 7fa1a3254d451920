//go:build unix

package chaos_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Bar 16: whatever options consumers have, whatever becomes of their workers, and whatever operators
// do meanwhile, all promises hold together.

func barStress(b *bar) {
	for range pick(b, 1, 1, 3) {
		seed := b.Uint64()
		one := &bar{T: b.T, Rand: rand.New(rand.NewPCG(seed, 0)), tier: b.tier, name: b.name}
		s := newStress(one, anyOptions(one.Rand))
		s.goOn(pick(b, 8*time.Second, 30*time.Second, 4*time.Minute), s.disturbAll)
		e := s.evidence()
		f := chaos.Judge(e)
		if violations := s.violations(e, f); len(violations) > 0 {
			s.Errorf("consumers %+v\nviolations:\n%s", s.promised, strings.Join(violations, "\n"))
		}
		s.onlyLogged()
		advantage, _ := e.Advantage(e.Crowd)
		overtaken, _ := e.Overtaken(e.Crowd)
		b.figure("%d kills, %d stops of more than a lease, %d drains, operators %v", s.kills, s.stops, s.drains, s.deeds)
		b.figure("%d messages of %d consumers, %d starts and ends, %d deadlines; "+
			"waited behind %d of another key and %d of lower priorities at most (goal %d); %v",
			len(s.jobs)*len(e.Consumers), len(e.Consumers), len(e.Ledger), len(e.Deadlines), advantage, overtaken, e.Crowd, f)
	}
}

// TestTheJudgeDetectsCarelessWorkers has workers, and producers, do without what was promised.
// Promise: together
func TestTheJudgeDetectsCarelessWorkers(t *testing.T) {
	t.Parallel()
	for lasts := 6 * time.Second; ; lasts *= 2 { // a busy machine does too little in the first
		found := carelessRun(t, lasts)
		missing := slices.DeleteFunc([]string{
			"O1: before its turn", "O1: beside", "D1", "F1", "P1", "L1: at once of those that share", "L1: beyond the rate of rated", "L1: of key",
		}, func(want string) bool {
			return slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, want) })
		})
		if len(missing) == 0 {
			return
		}
		if lasts > 20*time.Second {
			t.Fatalf("violations: got %q, want also some that begin with %q", found, missing)
		}
	}
}

// carelessRun returns the violations of workers that do not do what was promised.
func carelessRun(t *testing.T, lasts time.Duration) []string {
	b := &bar{T: t, Rand: rand.New(rand.NewPCG(1, 1)), name: "stress, careless"}
	promised := anyOptions(b.Rand)
	promised.Options["rated"] = chaos.Options{Rate: 20}             // much less than what there is to do
	promised.Options["fair"] = chaos.Options{Fair: true, Rate: 100} // others wait behind the many of one key, however slow their producer
	s := newStress(b, promised, func(c *chaos.WorkerConfig) {
		c.Ordered, c.Skips, c.Shared, c.Limited, c.Options = nil, nil, nil, nil, maps.Clone(c.Options)
		for name, o := range c.Options {
			o.Fair, o.Ageing, o.Limit = false, 0, 0
			if name == "rated" {
				o.Rate = 0
			}
			c.Options[name] = o
		}
	})
	s.heedless = true
	s.goOn(lasts, func(stop time.Time) { pause(time.Until(stop)) })
	e := s.evidence()
	return s.violations(e, chaos.Judge(e))
}

// stress is a run of consumers with random options.
type stress struct {
	*disturbed
	promised chaos.WorkerConfig // what the judge goes by
	drains   int                // workers that were stopped in order
	heedless bool               // deadlines are not told

	mu    sync.Mutex // guards what follows, and the jobs
	deeds map[string]int
	known chaos.Knowledge // what producers and operators know
}

const (
	stressLease = 2 * time.Second
	stressCrew  = 3
	// largestClaim is how many messages a worker claims at once at most.
	largestClaim = 40
)

// newStress has workers do what was promised, unless something is changed before they start.
func newStress(b *bar, promised chaos.WorkerConfig, changes ...func(*chaos.WorkerConfig)) *stress {
	b.Helper()
	config := promised
	for _, change := range changes {
		change(&config)
	}
	s := &stress{
		disturbed: disturbedRun(b, testdb.PostgresDSN(b, "synchronous_commit=off"), config), promised: promised, deeds: make(map[string]int),
		known: chaos.Knowledge{
			Operator: "operator", Withdrawn: make(map[chaos.Run]time.Time), Moved: make(map[chaos.Run]bool), Deadlines: make(map[int]time.Time),
			Produced: make(map[int]chaos.Span), Priorities: make(map[int]int),
		},
	}
	for name, o := range promised.Options {
		if o.Fair {
			s.known.Fair = append(s.known.Fair, name)
		}
		if o.Ageing > 0 {
			s.known.Prior, s.known.Ageing = append(s.known.Prior, name), o.Ageing
		}
	}
	for i := range stressCrew {
		s.startAny(i)
	}
	return s
}

// startAny starts a worker with a processor of its own kind.
func (s *stress) startAny(i int) {
	s.Helper()
	s.config.Claim, s.config.Loops, s.config.Handler = 5+s.IntN(largestClaim-4), 1+s.IntN(2), 12+s.IntN(40)
	s.config.Poll = s.between(50*time.Millisecond, time.Second)
	s.start(i)
}

// goOn has producers, operators and what disturbs have their way for a while, and then all be done.
func (s *stress) goOn(lasts time.Duration, disturb func(stop time.Time)) {
	s.Helper()
	stop := time.Now().Add(lasts)
	var others sync.WaitGroup
	for part := range 3 {
		source := rand.New(rand.NewPCG(s.Uint64(), uint64(part)))
		others.Go(func() { s.produce(source, part, stop) })
	}
	operator := s.newOperator()
	others.Go(func() { operator.work(stop) })
	disturb(stop)
	others.Wait()
	testapp.OK(s, chaos.Lenient(s.dir))
	s.deeds["requeue at the end"] = s.requeueUntilSettled()
	s.stopAll()
}

// disturbAll kills workers, stops them for longer than a lease, and stops them in order.
func (s *stress) disturbAll(stop time.Time) {
	for time.Now().Before(stop) {
		pause(s.between(100*time.Millisecond, 700*time.Millisecond))
		switch victim := s.atWork(); s.IntN(5) {
		case 0:
			s.standStill(victim)
		case 1:
			s.drains++
			if _, _, err := s.workers[victim].Stop(); err != nil {
				s.Error(err)
			}
			s.startAny(victim)
		default:
			s.kills++
			s.kill(victim)
			s.startAny(victim)
		}
	}
	s.forget()
}

// produce produces jobs of every third key until it is time to stop, now and then very many of one, as
// long as workers keep up.
func (s *stress) produce(source *rand.Rand, part int, stop time.Time) {
	crowd := time.Now()
	for ; time.Now().Before(stop); pause(time.Duration(source.IntN(300)) * time.Millisecond) {
		waiting, err := s.db.NewSelect().Table("consumer_messages").Count(s.ctx)
		if err != nil {
			s.Errorf("produce: %v", err)
			return
		}
		if waiting > 6000 {
			continue
		}
		items, rollBack := make([]outbox.Item, 1+source.IntN(4)), source.IntN(12) == 0
		crowded := part == 0 && waiting < 1500 && time.Now().After(crowd)
		if crowded {
			items, rollBack, crowd = make([]outbox.Item, 400), false, time.Now().Add(8*time.Second)
		}
		if err := s.commitAll(source, items, rollBack, func(job chaos.Job) outbox.Item {
			if crowded {
				job.Key = orderKeys()[0]
				return outbox.Item{Payload: job}
			}
			job.Key = orderKeys()[3*source.IntN(4)+part]
			return s.item(source, job)
		}); err != nil {
			s.Errorf("produce: %v", err)
			return
		}
	}
}

// commitAll produces so many items in a transaction, or rolls it back, and notes when that was.
func (s *stress) commitAll(source *rand.Rand, items []outbox.Item, rollBack bool, item func(chaos.Job) outbox.Item) error {
	jobs := make([]int, len(items))
	s.mu.Lock()
	for i := range items {
		jobs[i] = len(s.jobs) + len(s.never)
		items[i] = item(chaos.Job{N: jobs[i], Takes: time.Duration(source.IntN(5)) * time.Millisecond})
		s.keys[jobs[i]] = items[i].Payload.(chaos.Job).Key
		if rollBack {
			s.never = append(s.never, jobs[i])
		} else {
			s.jobs = append(s.jobs, jobs[i])
		}
	}
	s.mu.Unlock()
	span := chaos.Span{From: time.Now()}
	err := s.commitLate(source, items, rollBack)
	span.To = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, job := range jobs {
		s.known.Produced[job] = span
	}
	return err
}

// item has a job do anything, with any options.
func (s *stress) item(source *rand.Rand, job chaos.Job) outbox.Item {
	var options []outbox.Option
	switch kind := source.IntN(400); {
	case kind == 0:
		job.Do = chaos.Halt
		s.doomed = append(s.doomed, job.N)
	case kind < 20:
		job.Do = chaos.Once
	case kind < 80:
		by := time.Now().Add(time.Duration(100+source.IntN(3000)) * time.Millisecond)
		s.known.Deadlines[job.N] = by
		if !s.heedless {
			options = append(options, outbox.DeliverBy(by, bus.Discarded))
		}
	}
	if priority := source.IntN(6); priority <= int(bus.Urgent) {
		s.known.Priorities[job.N] = priority
		options = append(options, outbox.Priority(bus.Priority(priority)))
	}
	return outbox.Item{Payload: job, Options: options}
}

// evidence is what is left of the run, and what producers and operators know.
func (s *stress) evidence() chaos.Evidence {
	s.Helper()
	e := s.run.evidence()
	e.Consumers, e.Tx = s.promised.Consumers(), s.promised.Tx
	e.Ordered, e.Shared, e.Skips = s.promised.Ordered, s.promised.Shared, s.promised.Skips
	e.Knowledge, e.Stood, e.Crowd = s.known, s.stood, stressCrew*largestClaim
	return e
}

// violations are what the judge has to say, and what was beyond its bounds.
func (s *stress) violations(e chaos.Evidence, f chaos.Findings) []string {
	found := f.Violations()
	over := func(what string, got, most int) {
		if got > most {
			found = append(found, fmt.Sprintf("L1: %s: got %d, want at most %d", what, got, most))
		}
	}
	p := s.promised
	over("at once of those that share a limit", e.Ledger.Most(p.Limited, s.gone), p.Limit)
	for name, o := range p.Options {
		if o.Limit > 0 {
			over("at once of "+name, e.Ledger.Most([]string{name}, s.gone), o.Limit)
		}
		if o.Rate > 0 {
			excess, _ := e.Ledger.Excess([]string{name}, float64(o.Rate), chaos.RateBurst)
			over("beyond the rate of "+name, int(excess), o.Rate/2)
		}
	}
	for _, name := range p.Tx {
		kept := s.count("SELECT count(*) FROM consumed_messages WHERE consumer_type = ? AND outcome = 'done'", name)
		if effects := s.count("SELECT count(*) FROM effects WHERE consumer = ?", name); p.Options[name].Keep && kept != effects {
			found = append(found, fmt.Sprintf("K1: kept of %s: got %d of %d effects", name, kept, effects))
		}
	}
	for key, part := range s.byKey(e.Ledger) {
		for _, name := range p.Shared {
			over("of key "+key+" at once of "+name, part.Most([]string{name}, s.gone), p.PerKey)
		}
	}
	return found
}

func (s *stress) byKey(all chaos.Ledger) map[string]chaos.Ledger {
	parts := make(map[string]chaos.Ledger)
	for _, e := range all {
		parts[s.keys[e.Job]] = append(parts[s.keys[e.Job]], e)
	}
	return parts
}

// anyOptions gives each consumer what it is there for, and others at random.
func anyOptions(r *rand.Rand) chaos.WorkerConfig {
	c := chaos.WorkerConfig{
		Ordered: []string{"parks", "skips"}, Skips: []string{"skips"}, Shared: []string{"per-key"}, PerKey: 2 + r.IntN(3),
		Limited: []string{"limited", "limited-too"}, Limit: 2 + r.IntN(4), Options: make(map[string]chaos.Options), Lease: stressLease,
	}
	names, keeps := []string{"parks", "skips", "per-key", "fair", "prior", "limited", "limited-too", "rated", "any"}, r.Uint64()
	for i, name := range names {
		o := chaos.Options{Fair: name == "fair", Keep: keeps>>i&1 == 1}
		kind := &c.Plain
		if r.IntN(2) == 0 {
			kind = &c.Tx
		}
		*kind = append(*kind, name)
		switch {
		case r.IntN(3) == 0:
			c.Batched = append(c.Batched, name)
			o.Size, o.Wait = 2+r.IntN(30), time.Duration(r.IntN(2)*r.IntN(60))*time.Millisecond
		case kind == &c.Tx && r.IntN(2) == 0:
			c.Grouped = append(c.Grouped, name)
		}
		if name == "prior" {
			o.Ageing = time.Duration(1+r.IntN(3)) * time.Second
		}
		if slices.Contains([]string{"rated", "fair", "prior"}, name) || r.IntN(4) == 0 { // what shares has messages wait
			o.Rate = 150 + r.IntN(100)
		}
		if r.IntN(4) == 0 && !slices.Contains(c.Limited, name) {
			o.Limit = 3 + r.IntN(4)
		}
		if r.IntN(3) == 0 {
			o.Concurrency = 2 + r.IntN(4)
		}
		if r.IntN(4) == 0 {
			o.Breaker = 0.1 + 0.5*r.Float64()
		}
		c.Options[name] = o
	}
	return c
}
