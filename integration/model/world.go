package model

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"pgregory.net/rapid"

	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// taken is a claim as its owner remembers it, long after it has gone.
type taken struct {
	owner string
	claim int
	keys  []Key
	rows  map[Key]Row // as they were claimed
}

// world draws operations and carries them out on several systems in step: the
// model, which is the first, and databases.
type world struct {
	*rapid.T
	systems []System
	tally   Tally
	view    View
	now     time.Duration
	lost    map[Key]int // how often an process lost since the last outcome
	taken   []taken
	sent    []Step // settles that may be sent again
	hints   map[string]Place
	made    int // messages
	claims  int
	locked  map[Key]bool    // by steps of the scheduler: see halves.go
	shut    map[string]bool // consumers whose gates are

	groups   [][]string // of consumers, which all systems can serve
	instants map[time.Duration]bool
	starts   map[lane][]time.Duration         // of what has a rate
	slots    map[string]map[int]time.Duration // that owners were given, and until when
}

func owners() []string    { return []string{"a", "b", "c"} }
func consumers() []string { return []string{"one", "two"} }

// Lockstep draws operations and checks after each that all systems look like the
// first and keep the invariants, and at the end that everything drains. The
// systems must be empty.
func Lockstep(t *rapid.T, tally Tally, systems ...System) {
	w := newWorld(t, tally, systems...)
	w.begin()
	w.Repeat(w.actions())
	w.drain()
}

func newWorld(t *rapid.T, tally Tally, systems ...System) *world {
	tally["runs"]++
	w := &world{
		T:       t,
		systems: systems,
		tally:   tally,
		view:    newView(),
		lost:    make(map[Key]int),
		hints:   make(map[string]Place),
		locked:  make(map[Key]bool),
		shut: make(
			map[string]bool,
		),
		instants: make(map[time.Duration]bool),
		starts:   make(map[lane][]time.Duration),
		slots:    make(map[string]map[int]time.Duration),
	}
	all := groups(!slices.ContainsFunc(systems, func(s System) bool { return !s.AnyOrder() }))
	for i, group := range all { // not all in each run, so that more happens to each
		if i == 0 || w.chance("group", 2) {
			w.groups = append(w.groups, group)
		}
	}
	return w
}

// begin produces something, so that there is something to claim at once.
func (w *world) begin() {
	for i := range 4 {
		p := Produce{Message: w.made, Consumers: slices.Concat(w.groups...), OrderKey: orderKeys()[i/2]}
		p.Delay = w.unmet(0, p.Consumers...)
		w.made++
		same(w, Step{Kind: "produce", Produce: p}, func(s System) int { return s.Produce(p) })
	}
}

func (w *world) actions() map[string]func(*rapid.T) {
	actions := map[string]func(*rapid.T){
		"produce":  func(*rapid.T) { w.produce() },
		"hand off": func(*rapid.T) { w.handOff() },
		"claim":    func(*rapid.T) { w.claimOf(w.group()) },
		"claim 2":  func(*rapid.T) { w.claimOf(w.group()) }, // more often than the rest
		"claim 3":  func(*rapid.T) { w.claimOf(w.group()) },
		"settle":   func(*rapid.T) { w.settle() },
		"settle 2": func(*rapid.T) { w.settle() },
		"repeat":   func(*rapid.T) { w.repeat() },
		"finish":   func(*rapid.T) { w.finish() },
		"extend":   func(*rapid.T) { w.extend() },
		"disclaim": func(*rapid.T) { w.disclaim() },
		"recover":  func(*rapid.T) { w.recover() },
		"transact": func(*rapid.T) { w.transact() },
		"pass":     func(*rapid.T) { w.pass() },
		"vanish":   func(*rapid.T) { w.wait(Lease + time.Second); w.recover() }, // everybody at once
	}
	maps.Copy(actions, w.flowActions())
	return actions
}

// same carries an operation out on every system and compares what it returned,
// by its text, in which equal answers are equal.
func same[T any](w *world, step Step, do func(System) T) T {
	w.Helper()
	answers := ask(w.systems, do)
	for i, answer := range answers {
		if got, want := fmt.Sprintf("%+v", answer), fmt.Sprintf("%+v", answers[0]); got != want {
			w.Fatalf("%s by system %d: got %s, want %s\n%v", step.Kind, i, got, want, w.view)
		}
	}
	w.look(step)
	return answers[0]
}

// ask has every system answer, all at the same time: databases take their time.
func ask[S, T any](systems []S, question func(S) T) []T {
	answers, panics := make([]T, len(systems)), make([]any, len(systems))
	answer := func(i int) {
		defer func() { panics[i] = recover() }()
		answers[i] = question(systems[i])
	}
	var all sync.WaitGroup
	for i := 1; i < len(systems); i++ {
		all.Go(func() { answer(i) })
	}
	answer(0)
	all.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p) // as the system did, on the goroutine that asked
		}
	}
	return answers
}

// look compares what the systems look like after a step.
func (w *world) look(step Step) {
	w.Helper()
	views := ask(w.systems, System.View)
	after := views[0]
	for i, view := range views[1:] {
		if got, want := view.String(), after.String(); got != want {
			w.Fatalf("after a %s %+v system %d:\n%s\nwant:\n%s\nbefore it:\n%v", step.Kind, step, i+1, got, want, w.view)
		}
	}
	step.Locked = w.locked
	w.tally.note(w.view, after, step)
	if err := errors.Join(Check(w.view, after, step), w.innocents(after, step)); err != nil {
		w.Fatalf("after a %s: %v\n%+v\nbefore:\n%v\nafter:\n%v", step.Kind, err, step, w.view, after)
	}
	w.view = after
}

func draw[T any](w *world, what string, values ...T) T {
	return rapid.SampledFrom(values).Draw(w.T, what)
}

func (w *world) chance(what string, oneIn int) bool {
	return rapid.IntRange(1, oneIn).Draw(w.T, what) == oneIn
}

func (w *world) produce() {
	p := Produce{Message: w.made, Consumers: slices.Concat(w.groups...), RolledBack: w.chance("rolled back", 6)}
	w.made++
	p.OrderKey = draw(w, "order key", append(orderKeys(), "k", "k")...)
	if w.chance("one consumer", 2) {
		p.Consumers = []string{draw(w, "consumer", p.Consumers...)}
	}
	if w.chance("delayed", 5) {
		p.Delay = draw(w, "delay", time.Microsecond, time.Second, Lease)
	}
	if w.chance("keyed", 3) {
		p.InsertID = draw(w, "insert id", "x", "y")
	}
	if ordered := slices.DeleteFunc(slices.Clone(p.Consumers), func(c string) bool { return !inOrder(c) }); len(ordered) > 0 &&
		w.chance("two", 3) {
		// Of others nobody says which of the two is first, since insert ids are sorted.
		p.Consumers, p.InsertID, p.Second = ordered, "y", "x"
		w.made++
		w.tally["two produced"]++
	}
	p.Delay = w.unmet(p.Delay, p.Consumers...)
	same(w, Step{Kind: "produce", Produce: p}, func(s System) int { return s.Produce(p) })
}

// handOff produces in a transaction that claims its messages for a processor.
func (w *world) handOff() {
	if slices.ContainsFunc(w.systems, func(s System) bool { return !s.HandsOff() }) {
		w.Skip("a database does not hand off")
	}
	p := Produce{Message: w.made, Consumers: consumers(), RolledBack: w.chance("rolled back", 6), HandOff: draw(w, "owner", owners()...)}
	if w.chance("one consumer", 2) {
		p.Consumers = []string{draw(w, "consumer", p.Consumers...)}
	}
	w.made++
	if same(w, Step{Kind: "produce", Produce: p}, func(s System) int { return s.Produce(p) }) > 0 {
		w.tally["handed off"]++
		w.remember(Request{Owner: p.HandOff, Consumers: p.Consumers, Limit: len(p.Consumers)}, w.view, w.now, p.keys())
	}
}

// recall draws a claim that was made, most often a recent one. Nobody says that
// it is still there.
func (w *world) recall() taken {
	if len(w.taken) == 0 {
		w.Skip("nothing was claimed yet")
	}
	back := rapid.IntRange(0, min(len(w.taken)-1, 4)).Draw(w.T, "how long ago")
	return w.taken[len(w.taken)-1-back]
}

// results draws outcomes for some of what was claimed.
func (w *world) results(c taken) (results []Result) {
	for _, key := range c.keys {
		if w.chance("later", 3) {
			continue
		}
		outcomes := []store.Outcome{store.Done, store.Failed, store.Snoozed, store.Poison, store.Release}
		if rulesOf(key.Consumer).Parks { // more often, since much must come together for others to wait
			outcomes = append(outcomes, store.Poison, store.Poison, store.Poison)
		}
		r := Result{Claim: c.claim, Key: key, Outcome: draw(w, "outcome", outcomes...)}
		switch r.Outcome {
		case store.Failed:
			r.Errors, r.Delay = draw(w, "errors", "", "e1", "e2"), draw(w, "delay", 0, time.Second)
		case store.Snoozed:
			r.Delay = draw(w, "delay", 0, time.Second, Lease)
		case store.Poison:
			r.Errors, r.Reason = draw(w, "errors", "", "e3"), "drawn"
		}
		if r.Outcome == store.Failed || r.Outcome == store.Snoozed {
			r.Delay = w.unmet(r.Delay, key.Consumer)
		}
		results = append(results, r)
	}
	return results
}

func (w *world) settle() {
	c := w.recall()
	step := Step{Kind: "settle", Owner: c.owner, Results: w.results(c)}
	if w.chance("of another owner", 12) {
		step.Owner = draw(w, "owner", owners()...)
	}
	if w.chance("with another claim", 3) {
		if other := w.recall(); other.claim != c.claim && other.owner == c.owner {
			step.Results = append(step.Results, w.results(other)...)
		}
	}
	w.sent = append(w.sent, step)
	w.send(step)
}

// repeat sends a settle again whose answer was lost, or that comes late.
func (w *world) repeat() {
	if len(w.sent) == 0 {
		w.Skip("nothing was settled yet")
	}
	w.send(w.sent[len(w.sent)-1-rapid.IntRange(0, min(len(w.sent)-1, 5)).Draw(w.T, "which")])
}

func (w *world) send(step Step) {
	var keys []Key
	for _, r := range step.Results {
		keys = append(keys, r.Key)
	}
	if len(keys) == 0 || w.blocked(keys) {
		return
	}
	settled := same(w, step, func(s System) Settled { return s.Settle(step.Owner, step.Results) })
	w.tally["fenced"] += len(step.Results) - settled.Applied
}

func (w *world) blocked(keys []Key) bool {
	blocked := slices.ContainsFunc(keys, func(key Key) bool { return w.locked[key] })
	if blocked {
		w.tally["blocked"]++
	}
	return blocked
}

func (w *world) finish() {
	c := w.recall()
	if w.blocked(c.keys) {
		return
	}
	finished := same(w, Step{Kind: "finish", Owner: c.owner}, func(s System) map[int]int { return s.Finish(c.owner, []int{c.claim}) })
	for _, n := range maps.All(finished) {
		w.tally["finished"] += n
	}
}

func (w *world) extend() {
	owner := draw(w, "owner", owners()...)
	w.tally["extended"] += len(same(w, Step{Kind: "extend", Owner: owner}, func(s System) []int { return s.Extend(owner) }))
}

func (w *world) disclaim() {
	c := w.recall()
	before := len(w.view.Claims)
	defer func() { w.tally["disclaimed"] += before - len(w.view.Claims) }()
	same(w, Step{Kind: "disclaim", Owner: c.owner}, func(s System) struct{} { s.Disclaim(c.owner, []int{c.claim}); return struct{}{} })
}

func (w *world) recover() store.Recovered {
	found := same(w, Step{Kind: "recover"}, System.Recover)
	w.tally["crashes"] += found.Crashed
	return found
}

// transaction draws a run of a transactional consumer on something claimed.
func (w *world) transaction() Transaction {
	c := w.recall()
	key := draw(w, "message", c.keys...)
	return Transaction{
		Owner: c.owner, Claim: c.claim, Key: key, Attempts: c.rows[key].Attempts, Crashes: c.rows[key].Crashes,
		RolledBack: w.chance("rolled back", 4),
	}
}

func (w *world) transact() {
	t := w.transaction()
	if w.blocked([]Key{t.Key}) {
		return
	}
	if same(w, Step{Kind: "transact", Owner: t.Owner, Key: t.Key}, func(s System) bool { return s.Transact(t) }) {
		w.tally["effects"]++
	} else if !t.RolledBack {
		w.tally["transactions refused"]++
	}
}

func (w *world) pass() {
	w.wait(draw(w, "time", time.Microsecond, time.Second, Lease, Lease+time.Second, Lease+time.Second))
}

func (w *world) wait(d time.Duration) {
	w.now += d
	for _, s := range w.systems { // nothing to look at: no system acts by itself
		s.Pass(d)
	}
}
