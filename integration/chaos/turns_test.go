//go:build unix

package chaos_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

// What the judge of turns, deadlines and operators is worth shows on histories that were made up.

// turns are the jobs of each consumer in the order in which it runs them.
type turns map[string][]int

// promisedTurns are as they should be: jobs 0 to 5 have one key, 6 and 7 another, and 7 is urgent.
func promisedTurns() turns {
	return turns{"ordered": {0, 1, 6, 2, 3, 7, 4, 5}, "fair": {0, 6, 1, 7, 2, 3, 4, 5}, "prior": {7, 0, 1, 2, 3, 4, 5, 6}}
}

var epoch = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC) // immutable

// run is a run in which the jobs have these turns. Job 8 was too late, and an operator cancelled job 9.
func (t turns) run() *evidence {
	e := &evidence{Evidence: chaos.Evidence{
		Consumers: []string{"ordered", "fair", "prior"}, Ordered: []string{"ordered"},
		Jobs: []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, Keys: make(map[int]string), Lease: time.Second, Messages: make(map[int64]chaos.Run),
		Knowledge: chaos.Knowledge{
			Fair: []string{"fair"}, Prior: []string{"prior"}, Operator: "operator", Withdrawn: make(map[chaos.Run]time.Time),
			Deadlines: map[int]time.Time{5: epoch.Add(time.Minute), 8: epoch.Add(2 * time.Second)},
			Produced:  make(map[int]chaos.Span), Priorities: map[int]int{7: 2}, Ageing: time.Second, Crowd: 2, Stood: make(map[string][]chaos.Span),
		},
	}}
	for _, job := range e.Jobs {
		e.Keys[job] = []string{"loud", "quiet"}[job/6]
		if job < 8 { // the others never have a turn
			e.Produced[job] = chaos.Span{From: epoch, To: epoch.Add(10 * time.Millisecond)}
		}
	}
	clock := epoch.Add(time.Second)
	for _, consumer := range e.Consumers {
		for _, job := range t[consumer] {
			clock = clock.Add(20 * time.Millisecond)
			e.event(clock, chaos.Started, "a", chaos.Run{Consumer: consumer, Job: job})
			e.event(clock.Add(10*time.Millisecond), chaos.Finished, "a", chaos.Run{Consumer: consumer, Job: job})
		}
		late := chaos.Run{Consumer: consumer, Job: 8}
		e.change(clock, "a", chaos.Claimed, late, clock.Add(time.Minute))
		e.change(epoch.Add(3*time.Second), "a", chaos.Ended, late, clock.Add(time.Minute))
		e.change(epoch.Add(3*time.Second), "a", chaos.Written, late, time.Time{})
		cancelled := chaos.Run{Consumer: consumer, Job: 9}
		e.change(clock, "operator", chaos.Written, cancelled, time.Time{})
		e.Withdrawn[cancelled] = clock
	}
	return e
}

// event enters an event with the changes that belong to it.
func (e *evidence) event(at time.Time, kind chaos.EventKind, worker string, run chaos.Run) {
	e.note(at, kind, worker, run)
	e.Ledger = append(e.Ledger, chaos.Event{At: at, Kind: kind, Worker: worker, Consumer: run.Consumer, Job: run.Job, Attempt: 1})
}

func anyStood(e *evidence) { e.Stood["b"] = []chaos.Span{{From: epoch, To: epoch.Add(time.Minute)}} }

func TestJudgeConvictsOfTurns(t *testing.T) {
	t.Parallel()
	byNumber := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for what, test := range map[string]struct {
		want string // nothing for what is as promised
		in   turns
		do   func(e *evidence)
	}{
		"all as promised": {},
		"a later one of a key first": {
			"O1: before its turn: 1 of them, such as [{ordered 1}]", turns{"ordered": {1, 0, 2, 3, 4, 5, 6, 7}}, nil,
		},
		"one that was withdrawn only after a later one began": {
			"O1: before its turn: 1 of them, such as [{ordered 7}]", nil, withdrawn(epoch.Add(time.Hour)),
		},
		"one that was withdrawn before a later one began": {"", nil, withdrawn(epoch)},
		"two of a key at once": {
			"O1: beside another of its key: 1 of them, such as [{ordered 5}]", nil, besides,
		},
		"a batch with two of a key the wrong way round": {
			"O1: before its turn: 1 of them, such as [{ordered 3}]", turns{"ordered": {0, 1, 3, 2, 4, 5, 6, 7}}, inOneCall,
		},
		"a start after its deadline":               {"D1: after its deadline: 3 of them", nil, stoodUntil(epoch)},
		"one that stood still before its deadline": {"", nil, stoodUntil(epoch.Add(1500 * time.Millisecond))},
		"one that stood still long before":         {"D1: after its deadline: 3 of them", nil, stoodUntil(epoch.Add(-time.Minute))},
		"a message dropped before its deadline": {
			"I1: lost: 3 of them", nil, func(e *evidence) { e.Deadlines[8] = epoch.Add(time.Minute) },
		},
		"a message gone that nobody had cancelled": {
			"I1: lost: 3 of them", nil, func(e *evidence) { clear(e.Withdrawn) },
		},
		"a key behind all that another has": {
			"F1: behind more of another key than of its own: 2 of them, such as [{fair 6} {fair 7}]", turns{"fair": byNumber}, nil,
		},
		"a key behind all that another has while a worker stood still": {"", turns{"fair": byNumber}, anyStood},
		"an urgent one behind all others": {
			"P1: behind those of lower priorities: 1 of them, such as [{prior 7}]", turns{"prior": byNumber}, nil,
		},
		"an urgent one behind those that had aged": {"", turns{"prior": byNumber}, aged},
		"an urgent one that an operator had put off": {"", turns{"prior": byNumber}, func(e *evidence) {
			e.Moved = map[chaos.Run]bool{{Consumer: "prior", Job: 7}: true}
		}},
		"an urgent one while a worker stood still": {"", turns{"prior": byNumber}, anyStood},
		"an operator who writes to what somebody holds": {
			"I4: settled without a claim: 1 of them, such as [{ordered 0}]", nil, func(e *evidence) {
				held := e.History[0].Messages
				e.History = slices.Insert(e.History, 1, chaos.Change{At: epoch, Session: "operator", Kind: chaos.Written, Messages: held})
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			in := promisedTurns()
			for consumer, jobs := range test.in {
				in[consumer] = jobs
			}
			e := in.run()
			if test.do != nil {
				test.do(e)
			}
			slices.SortStableFunc(e.Ledger, func(a, b chaos.Event) int { return a.At.Compare(b.At) })
			violations := chaos.Judge(e.Evidence).Violations()
			if test.want == "" && len(violations) > 0 || test.want != "" && (len(violations) != 1 || !strings.HasPrefix(violations[0], test.want)) {
				t.Errorf("violations: got %q, want one that begins with %q", violations, test.want)
			}
		})
	}
}

// stoodUntil has job 5 start after its deadline, on a worker that stood still until then.
func stoodUntil(to time.Time) func(e *evidence) {
	return func(e *evidence) {
		e.Deadlines[5], e.Stood["a"] = epoch, []chaos.Span{{From: epoch.Add(-time.Hour), To: to}}
	}
}

// withdrawn has job 6 never run, and be withdrawn then.
func withdrawn(at time.Time) func(e *evidence) {
	return func(e *evidence) {
		run := chaos.Run{Consumer: "ordered", Job: 6}
		e.Ledger = without(without(e.Ledger, chaos.Started, run), chaos.Finished, run)
		e.Withdrawn[run] = at
	}
}

// besides has jobs 4 and 5 run again, each on another worker, and job 5 begin before job 4 is done.
func besides(e *evidence) {
	last := e.Ledger[15].At
	for i, job := range []int{4, 5} {
		worker, at := []string{"b", "c"}[i], last.Add(time.Duration(20*(i+1))*time.Millisecond)
		e.event(at, chaos.Started, worker, chaos.Run{Consumer: "ordered", Job: job})
		e.event(at.Add(10*time.Millisecond), chaos.Finished, worker, chaos.Run{Consumer: "ordered", Job: job})
	}
	e.Ledger[len(e.Ledger)-3].At = last.Add(45 * time.Millisecond)
}

// inOneCall has all runs of the first consumer be one batch.
func inOneCall(e *evidence) {
	for i := range e.Ledger[:16] {
		e.Ledger[i].Called = e.Ledger[0].At
	}
}

// aged has the urgent job be produced long after the others.
func aged(e *evidence) {
	for job := range 7 {
		e.Produced[job] = chaos.Span{From: epoch.Add(-time.Minute), To: epoch.Add(-time.Minute)}
	}
}
