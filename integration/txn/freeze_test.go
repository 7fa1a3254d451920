package txn_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

var (
	freezeAll  = flag.Bool("freeze.all", false, "stop a process at every place, instead of some")
	freezeSeed = flag.Uint64("freeze.seed", uint64(time.Now().UnixNano()), "chooses the places")
	freezeAt   = flag.String("freeze.at", "", "only places that match this regular expression")
)

const (
	freezeSome   = 4 // places, unless all are asked for
	freezeAtOnce = 4
	ownBound     = 5 * time.Second // on a transaction of the library's own that stands still
	functionIdle = worldTimeout + 10*time.Second
	scheduleIdle = 15 * time.Second
	freezeMargin = time.Second     // from the end of a lock to the next message, and more on a busy machine
	freezeStall  = time.Second / 4 // from which on statements may fail since the machine is busy
	freezeLoad   = ownBound + 2*time.Second
	// freezeWhole is for how long something may be left of what both had: a function of the application has the longest time.
	freezeWhole = worldLease + functionIdle + worldPoll
	// freezeSweeps is by how many times longer that takes on a machine that stalls: what was passed over while it was locked is
	// found by a sweep of some looks, which comes after 20 times the time that the one before took.
	freezeSweeps = 80
	// freezePatience is for how long a test waits for what is to come much sooner.
	freezePatience = 20 * time.Second
)

// freezeAnyhow is for how long something may be left in a run that takes some places: it sees that all ends, on any machine.
const freezeAnyhow = 3 * time.Minute

// timed tells whether a run is one that goes by the clock: it is started by hand, on a machine that does nothing else.
func timed() bool { return *freezeAll || *freezeAt != "" }

// TestAFrozenClientDelaysOthersForABoundedTime stops a process, by SIGSTOP, at the statements of the transactions that the
// library begins. The server ends them, and another process consumes what both had. A run takes some of the places, by
// -freeze.seed. With -freeze.all it takes each, and the other process has to go on within the bound.
// Promise: stalled-client
func TestAFrozenClientDelaysOthersForABoundedTime(t *testing.T) {
	if !canStop {
		t.Skip("there is no SIGSTOP")
	}
	t.Parallel()
	testdb.PostgresDSN(t) // skips the test in a run about other databases
	places := placesOf(t)
	t.Logf("%d places; -freeze.seed=%d", len(places), *freezeSeed)
	if !timed() {
		places = some(places)
	}
	var all sync.WaitGroup
	var looked atomic.Int64
	turns := make(chan struct{}, freezeAtOnce)
	for i, place := range places {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				freeze(t, place)
				looked.Add(1) // unless it was skipped
			})
		})
	}
	all.Wait()
	if int(looked.Load())*2 < len(places) || len(places) == 0 {
		t.Errorf("the process came to %d of %d places again, want half of them at least", looked.Load(), len(places))
	}
}

// some are places of different transactions, so that one of few statements is as likely as one of many.
func some(places []string) (chosen []string) {
	of := make(map[string][]string) // by what the transaction begins with
	for _, place := range places {
		tx, _, _ := strings.Cut(place, " | ")
		of[tx] = append(of[tx], place)
	}
	transactions := slices.Sorted(maps.Keys(of))
	chooser := rand.New(rand.NewPCG(*freezeSeed, 0))
	chooser.Shuffle(len(transactions), func(i, j int) { transactions[i], transactions[j] = transactions[j], transactions[i] })
	for _, tx := range transactions[:min(freezeSome, len(transactions))] {
		chosen = append(chosen, of[tx][chooser.IntN(len(of[tx]))])
	}
	return chosen
}

// placesOf has a process tell the places that there are: all that it comes to until there is nothing new for a while, and each
// kind of transaction was there.
func placesOf(t *testing.T) (places []string) {
	t.Helper()
	only := testapp.Must[*regexp.Regexp](t)(regexp.Compile(*freezeAt))
	t.Run("list", func(t *testing.T) {
		b := newBeside(t)
		defer b.stop()
		p := startFrozen(t, b.dsn, "")
		defer p.kill()
		var all []string
		missing := kinds()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline) || len(missing) > 0; {
			place, ok := p.next(t, 4*time.Second)
			if !ok && (len(missing) == 0 || time.Now().After(deadline.Add(time.Minute))) {
				break
			}
			all = append(all, place)
			missing = slices.DeleteFunc(missing, func(kind *regexp.Regexp) bool { return kind.MatchString(place) })
		}
		for _, kind := range missing {
			t.Errorf("no place of %d matches %s", len(all), kind)
		}
		places = slices.DeleteFunc(all, func(place string) bool { return place == "" || !only.MatchString(place) })
	})
	slices.Sort(places)
	return places
}

// kinds match places of each transaction that the services have. Steps, leases and what is pruned are single statements.
func kinds() (all []*regexp.Regexp) {
	for _, kind := range []string{
		`^INSERT INTO "inbox_messages".* \| INSERT INTO "consumer_messages"`,               // of a receiver
		`^INSERT INTO "inbox_messages".* \| INSERT INTO "events"`,                          // into the log
		`^INSERT INTO "inbox_messages".* \| UPDATE "event_subscriptions"`,                  // with a lease
		`^UPDATE "event_subscriptions" SET position.* \| INSERT INTO "event_parked"`,       // of a log forwarder
		`^SELECT shard FROM "event_subscriptions".* \| DELETE FROM "event_parked"`,         // of its rewind
		`^SELECT pg_advisory_xact_lock.* \| INSERT INTO "event_subscriptions"`,             // of its start
		`^INSERT INTO "message_groups"`,                                                    // of WhenDone
		`^SELECT name FROM "message_groups".* SKIP LOCKED \| DELETE FROM "message_groups"`, // of the end of a group
		`\| INSERT INTO "consumed_messages"`,                                               // of a transactional consumer that keeps
		`\| PREPARE asyncmonolith_settle_\w*keep`,                                          // of the others
		`\| SELECT .* FROM "consumed_messages".* FOR UPDATE`,                               // of a repetition
		`handing_off.* \| SAVEPOINT \w+; INSERT INTO "message_claims"`,                     // of a hand-off
	} {
		all = append(all, regexp.MustCompile(kind))
	}
	return all
}

// freezeTries is how often a place may look bad: a busy machine holds somebody up now and then, a lock does each time.
const freezeTries = 3

// freeze stops a process at a place, and looks at the one beside it.
func freeze(t *testing.T, place string) {
	t.Log(place)
	for try := 1; ; try++ {
		wrong := freezeOnce(t, place)
		if len(wrong) == 0 {
			return
		}
		say := t.Logf
		if try == freezeTries {
			say = t.Errorf
		}
		say("try %d of %d:\n\t%s", try, freezeTries, strings.Join(wrong, "\n\t"))
		if try == freezeTries {
			return
		}
	}
}

// freezeOnce returns what was wrong.
func freezeOnce(t *testing.T, place string) (wrong []string) {
	b := newBeside(t)
	p := startFrozen(t, b.dsn, place)
	b.start()
	defer b.stop()
	defer p.kill()
	pid, ok := p.next(t, 20*time.Second)
	if !ok {
		t.Skip("it did not come there again")
	}
	begun := time.Now()
	close(b.serve) // the other has the leases
	return append(b.watch(place), b.ended(pid, place, begun)...)
}

// ended sees that the server has ended the transaction that stands still, unless that has but begun, and so holds nothing.
func (b *beside) ended(pid, place string, begun time.Time) (wrong []string) {
	bound := ownBound
	switch {
	case strings.HasPrefix(place, "settings"), strings.HasPrefix(place, " | "):
		return nil
	case strings.Contains(place, "AS idle"): // for a function of the application
		bound = functionIdle
	case strings.Contains(place, receives): // for layers of it, too
		bound = receiveIdle
	case strings.HasPrefix(place, layers):
		bound = layersIdle
	case strings.Contains(place, `"scheduled_messages"`) && strings.Contains(place, "SKIP LOCKED"): // for layers of it
		bound = scheduleIdle
	}
	b.mu.Lock()
	bound += b.margin()
	b.mu.Unlock()
	if !timed() {
		bound += freezePatience
	}
	still := func() int {
		return b.app.Count(`SELECT count(*) FROM pg_stat_activity WHERE pid = ?::int AND xact_start < now() - interval '3 s'`, pid)
	}
	if !await(bound-time.Since(begun), func() bool { return still() == 0 }) {
		wrong = append(wrong, fmt.Sprintf("the transaction that stands still is there after %s", time.Since(begun)))
	}
	return wrong
}

// beside is the process beside the one that stands still, which is the test's own.
type beside struct {
	*world
	app      *testapp.App
	dsn      string
	stopLoad context.CancelFunc
	stop     func() // both, and waits for them

	mu       sync.Mutex
	since    time.Time            // for which it looks
	unloaded bool                 // from now on there need be nothing to do
	last     map[string]time.Time // progress of each
	gaps     map[string]time.Duration
	waited   map[string]time.Duration // the longest time that each statement took which took long
	failures []string
	stall    time.Duration // how long a statement took at worst that waits for nothing but the machine
}

func newBeside(t *testing.T) *beside {
	t.Helper()
	b := &beside{dsn: testdb.PostgresDSN(t), last: make(map[string]time.Time), gaps: make(map[string]time.Duration),
		waited: make(map[string]time.Duration)}
	db, err := openWatched(b.dsn, worldConns, b.answered)
	if err != nil {
		t.Fatal(err)
	}
	b.stop = func() { _ = db.Close() }
	b.world = testapp.Must[*world](t)(newWorld(db, b.progressed, b.callFailed))
	if err := b.prepare(context.WithoutCancel(t.Context())); err != nil {
		t.Fatalf("prepare: %v", err)
	}
	b.app, b.failures = &testapp.App{T: t, DB: db}, nil // tables that were not there do not count
	clear(b.waited)
	return b
}

// start runs it until it is stopped.
func (b *beside) start() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.app.Context()))
	load, stopLoad := context.WithCancel(ctx)
	done := make(chan error, 2)
	go func() { done <- b.run(ctx, load) }()
	go func() { done <- b.measure(ctx) }()
	b.stopLoad = stopLoad
	b.stop = func() {
		defer b.db.Close()
		cancel()
		if err := errors.Join(<-done, <-done); err != nil {
			b.app.Errorf("run: %v", err)
		}
	}
}

// measure sees how busy the machine is, by the longest time from one statement that waits for nothing to the next.
func (b *beside) measure(ctx context.Context) error {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	const every = 50 * time.Millisecond
	beat := time.NewTicker(every)
	defer beat.Stop()
	for last := time.Now(); ; {
		select {
		case <-beat.C:
		case <-ctx.Done():
			return nil
		}
		if err := conn.PingContext(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		b.mu.Lock()
		b.stall = max(b.stall, time.Since(last)-every)
		b.mu.Unlock()
		last = time.Now()
	}
}

// margin is what the machine may add to a bound.
func (b *beside) margin() time.Duration { return freezeMargin + 5*b.stall }

func (b *beside) progressed(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(what, time.Now())
}

// note keeps the longest time without progress.
func (b *beside) note(what string, now time.Time) {
	last, goesOn := b.last[what], !b.unloaded || allowed(what) > freezeLoad
	if goesOn && !b.since.IsZero() && !last.IsZero() {
		if last.Before(b.since) {
			last = b.since
		}
		b.gaps[what] = max(b.gaps[what], now.Sub(last))
	}
	b.last[what] = now
}

func (b *beside) callFailed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = append(b.failures, err.Error())
}

// answered notes how long a statement took, and whether it failed. What waits for a lock only so long may have waited in vain,
// and so may looks outside of transactions, which a busy machine is not given much time for: they are repeated.
func (b *beside) answered(a answered) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if a.took > time.Second/2 {
		b.waited[a.place()] = max(b.waited[a.place()], a.took)
	}
	said, ok := errors.AsType[*pgconn.PgError](a.err)
	inTime := a.tx == "" || strings.Contains(a.tx, receives) // for which a receiver does not wait as long as it may take
	inVain := ok && said.Code == "55P03" || inTime && errors.Is(a.err, context.DeadlineExceeded) || errors.Is(a.err, context.Canceled)
	if a.err != nil && !inVain && a.text != "ROLLBACK" { // whose cause is in the list
		b.failures = append(b.failures, fmt.Sprintf("%s: %v", a.text, a.err))
	}
}

// allowed is for how long something may stand still beside a process that does.
func allowed(what string) time.Duration {
	switch what {
	case "schedule": // whose messages go through layers of the application
		return scheduleIdle
	case "projection":
		return functionIdle
	case "receiver":
		return receiveIdle
	case "log receiver":
		return logReceiverLease
	case "forwarder":
		return forwarderLease
	default:
		return ownBound
	}
}

// watch has it produce for longer than the bound, waits until everything is consumed, and returns what was wrong.
func (b *beside) watch(place string) (wrong []string) {
	begun := time.Now()
	b.mu.Lock()
	b.since, b.stall = begun, 0
	for _, what := range []string{"log receiver", "forwarder"} { // the one that stands still may have been the only one until now
		b.last[what] = begun
	}
	b.mu.Unlock()
	<-time.After(freezeLoad)
	b.stopLoad()
	b.mu.Lock()
	for what, last := range b.last { // what has not come on since then
		if allowed(what) <= freezeLoad {
			b.note(what, time.Now())
			b.last[what] = last
		}
	}
	b.unloaded = true
	whole := freezeWhole + freezeMargin + freezeSweeps*b.stall
	if !timed() {
		whole = freezeAnyhow
	}
	b.mu.Unlock()
	left := ""
	late := !await(whole-time.Since(begun), func() bool { left = b.left(); return left == "" })
	if late {
		wrong = append(wrong, fmt.Sprintf("after %s this is not consumed: %s", whole, left))
	}
	emptied := time.Since(begun)
	for _, what := range goOn(place) {
		wrong = append(wrong, b.goesOn(what, begun)...)
	}
	return append(wrong, b.judge(emptied)...)
}

// goOn is what goes on without load, or has the log to publish, and may wait for a process that stands still at a place.
func goOn(place string) []string {
	switch {
	case strings.Contains(place, receives):
		return []string{"schedule", "receiver", "log receiver"}
	case strings.Contains(place, `"event_subscriptions"`) && !strings.Contains(place, "AS idle"):
		return []string{"schedule", "log receiver", "forwarder"}
	}
	return []string{"schedule"}
}

// goesOn sees that something goes on now, or has come to an end.
func (b *beside) goesOn(what string, begun time.Time) (wrong []string) {
	patience, from := allowed(what)+freezePatience, time.Now()
	if !timed() {
		patience = freezeAnyhow
	}
	goes := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.last[what].After(from)
	}
	if what == "forwarder" {
		goes = func() bool {
			return b.app.Count("SELECT count(*) FROM event_subscriptions WHERE name = 'relay:ledger' AND position < (SELECT position FROM event_head)") == 0
		}
	}
	if !await(patience, goes) {
		wrong = append(wrong, fmt.Sprintf("%s: nothing for %s", what, time.Since(begun)))
	}
	return wrong
}

// await waits for a condition, but not for ever.
func await(patience time.Duration, condition func() bool) bool {
	late := time.After(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			return false
		}
	}
	return true
}

// left tells what is due and not consumed, messages and events.
func (b *beside) left() string {
	var rows []string
	err := b.db.NewRaw(`SELECT m.consumer_type || ' ' || count(*) || ', crashes ' || max(crashes) || ', claimed ' || count(c.id) FROM consumer_messages m LEFT JOIN message_claims c ON m.id = ANY(c.message_ids)
WHERE m.available_after <= statement_timestamp() AND m.consumer_type NOT IN ('later', 'poisoned', 'schedule') GROUP BY m.consumer_type
UNION ALL SELECT 'a session ' || state || ' for ' || date_trunc('second', clock_timestamp() - state_change) || ': ' || left(query, 60) FROM pg_stat_activity
WHERE datname = current_database() AND xact_start < clock_timestamp() - interval '1 s' AND EXISTS (SELECT 1 FROM consumer_messages WHERE available_after <= statement_timestamp() AND consumer_type NOT IN ('later', 'poisoned', 'schedule'))
UNION ALL SELECT 'shard ' || shard || ' ' || status || COALESCE(last_error, '') FROM event_subscriptions WHERE name = 'p' AND position < (SELECT position FROM event_head)
UNION ALL SELECT 'events without number' WHERE EXISTS (SELECT 1 FROM events WHERE position IS NULL)`).Scan(context.Background(), &rows)
	if err != nil {
		return err.Error()
	}
	return strings.Join(rows, "; ")
}

func (b *beside) judge(emptied time.Duration) (wrong []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	say := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	longest := ""
	for _, what := range slices.Sorted(maps.Keys(b.gaps)) {
		gap := b.gaps[what]
		if most := allowed(what) + b.margin(); gap > most {
			say("%s: nothing for %s, want something within %s", what, gap, most)
		}
		if longest == "" || gap > b.gaps[longest] {
			longest = what
		}
	}
	for text, took := range b.waited {
		most := ownBound + b.margin()
		switch {
		case strings.HasPrefix(text, receives):
			most += receiveIdle - ownBound
		case strings.HasPrefix(text, layers):
			most += layersIdle - ownBound
		}
		if took > most {
			say("a statement took %s, want %s at most: %s", took, most, text)
		}
		b.app.Logf("waited %s: %s", took, text)
	}
	for _, failure := range slices.Compact(b.failures) {
		if b.stall < freezeStall { // else its own transactions may have stood still for too long
			say("failed: %s", failure)
		}
	}
	if !timed() {
		wrong = nil
	}
	b.app.Logf("everything was consumed after %.1f s, the longest gap %.1f s, of %s; the machine stalled for %.2f s", emptied.Seconds(),
		b.gaps[longest].Seconds(), longest, b.stall.Seconds())
	return wrong
}

// A process that is started with these runs a world and, in a transaction, stands still at the place that it is given, and tells
// which of the server's processes that is. Without one it tells all places instead, on its standard output, a line for each.
const (
	frozenDSN = "ASYNCMONOLITH_TEST_FROZEN_DSN"
	frozenAt  = "ASYNCMONOLITH_TEST_FROZEN_AT"
)

// runFrozen is what such a process does until it is killed.
func runFrozen(dsn, at string) error {
	var mu sync.Mutex
	seen := make(map[string]bool)
	watch := func(a answered) {
		prepares := strings.HasPrefix(a.text, "PREPARE") || strings.Contains(a.text, "pg_prepared_statements")
		if a.tx == "" && !prepares || a.tx == withoutValues(applicationsOwn) || a.err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		switch place := a.place(); {
		case at == "" && !seen[place]:
			seen[place] = true
			fmt.Println(place)
		case at == place:
			fmt.Println(a.pid)
			if err := stopMyself(); err != nil {
				panic(err)
			}
			select {} // the other threads may stop a little later, this transaction stands still
		}
	}
	db, err := openWatched(dsn, worldConns, watch)
	if err != nil {
		return err
	}
	defer db.Close()
	w, err := newWorld(db, func(string) {}, func(error) {})
	if err != nil {
		return err
	}
	close(w.serve)
	return w.run(context.Background(), context.Background())
}

// frozenProcess is such a process.
type frozenProcess struct {
	said chan string // closed when it is gone
	kill func()      // and waits for it
}

// startFrozen starts one.
func startFrozen(t *testing.T, dsn, at string) *frozenProcess {
	t.Helper()
	p, command := &frozenProcess{said: make(chan string, 1000)}, exec.Command(os.Args[0])
	command.Env = append(os.Environ(), frozenDSN+"="+dsn, frozenAt+"="+at)
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatalf("start a process: %v", err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.said <- lines.Text()
		}
	}()
	p.kill = func() {
		_ = command.Process.Kill()
		<-read
		_ = command.Wait() // it was killed
	}
	return p
}

// next is the next line that it says, unless that takes too long.
func (p *frozenProcess) next(t *testing.T, patience time.Duration) (line string, ok bool) {
	t.Helper()
	select {
	case line, ok = <-p.said:
		if !ok {
			t.Fatal("the process has ended by itself")
		}
		return line, true
	case <-time.After(patience):
		return "", false
	}
}
