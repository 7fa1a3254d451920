//go:build unix

package chaos_test

import (
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Bar 5: a message whose consumer ends the process is delivered three times and
// poisoned, and of its 200 neighbours none is.

func barKillers(b *bar) {
	deeds := []chaos.Deed{chaos.Exit}
	if b.tier > short {
		// The race detector has its own view of a race, and needs more address
		// space than a limit would leave.
		deeds = append(deeds, chaos.Race, chaos.Hog)
	}
	for _, deed := range deeds {
		b.killer(b.dsn(), deed)
	}
}

// addressSpace is what a worker may use that takes all the memory there is: the
// runtime reserves more than it uses.
const addressSpace = 2 << 30

func (b *bar) killer(dsn string, deed chaos.Deed) {
	const neighbours = 200
	config := chaos.WorkerConfig{Plain: []string{"one"}, Lease: 2 * time.Second}
	if deed == chaos.Hog {
		config.AddressSpace = addressSpace
	}
	r := newRun(b, dsn, config)
	takes := func() time.Duration { return b.between(time.Millisecond, 20*time.Millisecond) }
	before := b.IntN(neighbours) // who is claimed together with the killer depends on where it stands
	r.produce(before, takes)
	killer := r.plant(chaos.Job{Do: deed, Takes: 5 * time.Millisecond})[0]
	r.produce(neighbours-before, takes)
	r.doomed = append(r.doomed, killer)

	begun := time.Now()
	r.start(0)
	r.start(1)
	deaths, death := 0, deathOf(deed)
	b.eventually(time.Minute, "everything is settled", func() bool {
		for i, w := range r.workers {
			select {
			case <-w.Ended():
				if deaths++; deaths > 3 {
					b.Fatalf("%s: got a death of a worker beyond the 3 of a message that is poisoned then", deed)
				}
				if w.ExitCode() != death.code || !strings.Contains(w.Log(), death.words) {
					b.Errorf("%s: a worker ended with code %d, want %d and %q: %s", deed, w.ExitCode(), death.code, death.words, w.Log())
				}
				r.died[w] = true
				r.killed[w.Name()] = begun // and not before it was struck
				r.start(i)
			default:
			}
		}
		return r.settled()
	})
	took := time.Since(begun)
	r.stopAll()
	f := r.judge()
	deliveries := r.ledger().Count(chaos.Started)[chaos.Run{Consumer: "one", Job: killer}]
	if deliveries != 3 || deaths != 3 {
		b.Errorf("%s: got %d deliveries and %d deaths of workers, want 3 and 3", deed, deliveries, deaths)
	}
	if poisoned := r.rowsOf("poisoned_messages"); !slices.Equal(poisoned, []chaos.Run{{Consumer: "one", Job: killer}}) {
		b.Errorf("%s: poisoned: got %v, want only the killer, %d", deed, poisoned, killer)
	}
	if n := r.count("SELECT count(*) FROM poisoned_messages WHERE reason = 'process lost 3 times' AND crashes = 3 AND attempts = 0"); n != 1 {
		b.Errorf("%s: poisoned for the reason it was, and with its crashes: got %d, want 1", deed, n)
	}
	finished := 0
	for run, n := range r.ledger().Count(chaos.Finished) {
		if n > 0 && run.Job != killer {
			finished++
		}
	}
	if finished != neighbours {
		b.Errorf("%s: neighbours done: got %d, want %d", deed, finished, neighbours)
	}
	b.figure("%s: %d deliveries, then poisoned; of %d neighbours %d done, %d poisoned, %d started again; %.1fs",
		deed, deliveries, neighbours, finished, len(f.Innocent), f.Duplicates-(deliveries-1), took.Seconds())
}

// death is how a process ends: with which code, and which last words.
type death struct {
	code  int
	words string
}

func deathOf(deed chaos.Deed) death {
	switch deed {
	case chaos.Race:
		return death{2, "fatal error: concurrent map"}
	case chaos.Hog:
		return death{2, "out of memory"}
	}
	return death{code: 3} // as os.Exit was told
}

// plant commits jobs with deeds, and returns their numbers.
func (r *run) plant(jobs ...chaos.Job) (numbers []int) {
	r.Helper()
	items := make([]outbox.Item, len(jobs))
	for i, job := range jobs {
		job.N = len(r.jobs) + len(r.never)
		r.jobs = append(r.jobs, job.N)
		numbers = append(numbers, job.N)
		items[i].Payload = job
	}
	testapp.OK(r, testapp.Second(r.producer.ProduceMany(r.ctx, r.db, items...)))
	return numbers
}
