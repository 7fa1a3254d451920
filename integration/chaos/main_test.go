//go:build unix

package chaos_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/integration/brokers"
	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

var (
	tierFlag = flag.String("tier", "short", "which bars to run, and how long: short, chaos or long")
	seedFlag = flag.Uint64("seed", 0, "the seed of every random choice; 0 takes a new one")
	onlyFlag = flag.String("bar", "", "run only this bar, in whatever tier")
)

func TestMain(m *testing.M) {
	brokers.Main()
	if os.Getenv(chaos.WorkerVariable) != "" {
		os.Exit(chaos.WorkerMain())
	}
	flag.Parse()
	goleak.VerifyTestMain(guarded{m})
}

// tier is how thorough a run is.
type tier int

const (
	short   tier = iota // part of make test-rest
	regular             // make chaos
	long                // make chaos-long
	apart               // by its name alone: it needs servers that make chaos-long does not start
	never               // it is not about this database
)

func tiers() []string { return []string{"short", "chaos", "long"} }

// aBar is a run that puts promises to the test, on one database or two.
type aBar struct {
	name     string // on MariaDB followed by -mariadb
	postgres tier   // the first that runs it on PostgreSQL
	mariadb  tier   // the first that runs it on MariaDB
	run      func(b *bar)
	budget   seconds
	promises string // ids of docs/guarantees.md, which fail this bar if they do not hold
}

// seconds is how long a bar takes in each tier, at most, on 2 cores that do nothing else.
type seconds [3]int

// hung is how many times longer than that a bar may take before it is ended as hung.
const hung = 4

// measured runs a bar, and says how long that took. How fast things go is not for a test to judge.
func (a aBar) measured(b *bar) {
	limit := hung * time.Duration(a.budget[b.tier]) * time.Second
	watchdog := time.AfterFunc(limit, func() { die(fmt.Sprintf("bar %s hangs: it has run for %s", a.name, limit), stacks()) })
	defer watchdog.Stop()
	begun := time.Now()
	defer func() { b.figure("took %s", time.Since(begun).Round(time.Second)) }()
	a.run(b)
}

// bar is a bar while it runs.
type bar struct {
	*testing.T
	*rand.Rand
	tier    tier
	name    string
	mariadb bool   // not PostgreSQL
	kept    string // the directory with the logs of its failed runs
}

// of returns the value for the bar's database.
func of[T any](b *bar, postgres, mariadb T) T {
	if b.mariadb {
		return mariadb
	}
	return postgres
}

// pick returns the value for the tier of this run.
func pick[T any](b *bar, atShort, atRegular, atLong T) T {
	return []T{atShort, atRegular, atLong}[b.tier]
}

// figure prints what a bar measured. It goes to standard output past the test's
// log, which a passing test would swallow.
func (b *bar) figure(format string, args ...any) {
	fmt.Printf("chaos: bar %-22s %s\n", b.name, fmt.Sprintf(format, args...))
}

// pause lets faults and work happen for a while.
func pause(d time.Duration) { <-time.After(d) }

// between returns a random duration.
func (b *bar) between(low, high time.Duration) time.Duration {
	return low + time.Duration(b.Int64N(int64(high-low)))
}

// eventually polls until the condition holds, and returns how long that took.
func (b *bar) eventually(patience time.Duration, what string, condition func() bool) time.Duration {
	b.Helper()
	begun := time.Now()
	for !condition() {
		if time.Since(begun) > patience {
			b.Fatalf("gave up after %s: %s", patience, what)
		}
		pause(10 * time.Millisecond)
	}
	return time.Since(begun)
}

func TestBars(t *testing.T) {
	level := tier(slices.Index(tiers(), *tierFlag))
	if level < 0 {
		t.Fatalf("-tier: got %q, want one of %q", *tierFlag, tiers())
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	fmt.Printf("chaos: tier %s, -seed %d\n", *tierFlag, seed)
	ran, turns := 0, make(chan struct{}, 2)
	run := func(a aBar, b bar, from tier) {
		if *onlyFlag != "" && b.name != *onlyFlag || *onlyFlag == "" && from > level || from == never {
			return
		}
		ran++
		t.Run(b.name, func(t *testing.T) {
			if level == short { // which measures nothing
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
			}
			b.T = t
			t.Cleanup(func() {
				if t.Failed() {
					b.figure("FAILED: run it again with -tier %s -bar %s -seed %d; it proves %s", *tierFlag, b.name, seed, a.promises)
				}
			})
			a.measured(&b)
		})
	}
	for i, a := range bars() {
		random := func() *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(i))) }
		run(a, bar{Rand: random(), name: a.name, tier: level}, a.postgres)
		// The long forms are PostgreSQL's.
		run(a, bar{Rand: random(), name: a.name + "-mariadb", tier: min(level, regular), mariadb: true}, a.mariadb)
	}
	if ran == 0 {
		t.Fatalf("-bar: got %q, which no bar is called", *onlyFlag)
	}
}

const (
	// judged are the promises that the judge checks after every run.
	judged = "at-least-once, all-or-none, one-worker, fenced"
	// underFaults are the promises of a bar that produces while the database fails.
	underFaults = judged + ", exactly-once, lease-end, outage-quiet"
)

// bars are all there are.
func bars() []aBar {
	return []aBar{
		{"1-kills", short, short, barKills, seconds{90, 120, 90}, judged + ", in-flight"},
		{"1-kills-tx", regular, never, barKillsTx, seconds{90, 90, 90}, judged + ", exactly-once, in-flight"},
		{"2-stops", long, long, barStops, seconds{180, 180, 180}, underFaults},
		{"2-backends", long, never, barBackends, seconds{150, 150, 150}, underFaults},
		{"2-resets", long, long, barResets, seconds{100, 100, 100}, underFaults},
		{"2-outage", long, long, barOutage, seconds{240, 240, 240}, underFaults + ", outage"},
		{"2-failover", regular, never, barFailover, seconds{90, 90, 300}, underFaults + ", failover"},
		{"3-commits", short, regular, barCommits, seconds{90, 120, 120}, judged + ", exactly-once, insert-id"},
		{"4-paused", long, long, barPaused, seconds{300, 300, 300}, judged},
		{"5-killers", short, long, barKillers, seconds{60, 90, 90}, judged + ", poison"},
		{"6-misdeeds", regular, long, barMisdeeds, seconds{120, 120, 120}, "failed-attempt"},
		{"6-cycles", regular, long, barCycles, seconds{120, 120, 120}, "failed-attempt"},
		{"6-storm", regular, never, barStorm, seconds{60, 90, 600}, judged + ", poison, suspects"},
		{"6-return", regular, never, barReturn, seconds{60, 90, 150}, judged + ", outage, suspects"},
		{"6-comeback", regular, never, barComeback, seconds{60, 60, 60}, judged + ", suspects"},
		{"7-sigterm", regular, long, barSigterm, seconds{360, 60, 360}, judged + ", graceful-stop"},
		{"8-pool-refused", long, long, barPoolRefused, seconds{30, 30, 30}, "pool"},
		{"8-pool-used", long, long, barPoolUsed, seconds{90, 90, 90}, judged + ", lease-end, pool"},
		{"8-read-only", long, long, barReadOnly, seconds{120, 120, 120}, underFaults + ", outage"},
		{"8-black-hole", long, long, barBlackHole, seconds{180, 180, 180}, underFaults},
		{"8-latency", long, long, barLatency, seconds{150, 150, 150}, underFaults},
		{"8-vanished", long, long, barVanished, seconds{60, 60, 60}, judged + ", vanished-client"},
		{"8-disk-full", long, long, barDiskFull, seconds{120, 120, 120}, underFaults},
		{"9-insert-ids", regular, long, barInsertIDs, seconds{150, 60, 150}, judged + ", insert-id"},
		{"9-isolation", regular, long, barIsolation, seconds{180, 180, 900}, judged + ", in-flight, isolation"},
		{"9-pgbouncer", long, never, barPgbouncer, seconds{900, 900, 900}, judged + ", in-flight, pgbouncer"},
		{"10-deploy", long, long, barDeploy, seconds{240, 240, 240}, judged + ", exactly-once, unknown-consumer"},
		{"11-schedules", long, long, barSchedules, seconds{240, 240, 240}, "schedule-once"},
		{"12-hostile", long, never, barHostile, seconds{600, 600, 600}, "input"},
		{"14-kills", short, never, barRelayKills, seconds{60, 150, 150}, judged + ", relay-effect"},
		{"14-inbox", regular, never, barRelayInbox, seconds{60, 120, 400}, judged + ", relay-effect, relay-ack"},
		{"14-partial", regular, never, barRelayPartial, seconds{30, 30, 30}, judged + ", relay-batch"},
		{"14-outage", regular, never, barRelayOutage, seconds{60, 200, 2400}, judged + ", relay-outage"},
		{"14-leader", regular, never, barRelayLeader, seconds{120, 200, 400}, judged + ", relay-effect"},
		{"14-order", regular, never, barRelayOrder, seconds{120, 240, 900}, "relay-log"},
		{"14-quorum", apart, never, barRelayQuorum, seconds{240, 240, 600}, judged + ", relay-effect"},
		{"14-move", regular, never, barRelayMove, seconds{60, 120, 300}, "relay-move"},
		{"14-soak", regular, never, barRelaySoak, seconds{90, 180, 4200}, judged + ", relay-effect"},
		{"15-order", short, long, barOrder, seconds{90, 150, 600}, judged + ", exactly-once, key-order"},
		{"16-stress", short, never, barStress, seconds{60, 120, 1000}, judged + ", exactly-once, key-order, limits, shares, deadline, together"},
		{"17-hand-off", short, never, barHandOff, seconds{60, 120, 180}, judged + ", exactly-once, in-flight"},
		{"18-groups", short, never, barGroups, seconds{60, 120, 240}, judged + ", exactly-once"},
		{"19-steps", short, never, barSteps, seconds{60, 120, 300}, judged + ", in-flight, steps"},
		{"13-model", regular, never, barModel, seconds{90, 300, 1260}, "model"},
	}
}
