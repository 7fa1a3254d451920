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
)

func tiers() []string { return []string{"short", "chaos", "long"} }

// aBar is one promise and the run that puts it to the test.
type aBar struct {
	name   string
	from   tier // the first tier that runs it
	run    func(b *bar)
	budget seconds
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
	tier tier
	name string
	kept string // the directory with the logs of its failed runs
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
	ran := 0
	for i, a := range bars() {
		if *onlyFlag != "" && a.name != *onlyFlag || *onlyFlag == "" && a.from > level {
			continue
		}
		ran++
		t.Run(a.name, func(t *testing.T) {
			b := &bar{T: t, Rand: rand.New(rand.NewPCG(seed, uint64(i))), tier: level, name: a.name}
			t.Cleanup(func() {
				if t.Failed() {
					b.figure("FAILED: run it again with -tier %s -bar %s -seed %d", *tierFlag, a.name, seed)
				}
			})
			a.measured(b)
		})
	}
	if ran == 0 {
		t.Fatalf("-bar: got %q, which no bar is called", *onlyFlag)
	}
}

// bars are all there are.
func bars() []aBar {
	return []aBar{
		{"1-kills", short, barKills, seconds{90, 90, 90}},
		{"1-kills-tx", short, barKillsTx, seconds{90, 90, 90}},
		{"1-kills-mariadb", short, barKillsMariaDB, seconds{90, 120, 120}},
		{"2-stops", long, barStops, seconds{180, 180, 180}},
		{"2-stops-mariadb", long, barStopsMariaDB, seconds{120, 120, 240}},
		{"2-backends", long, barBackends, seconds{150, 150, 150}},
		{"2-resets", long, barResets, seconds{100, 100, 100}},
		{"2-outage", long, barOutage, seconds{240, 240, 240}},
		{"2-failover", regular, barFailover, seconds{90, 90, 300}},
		{"2-resets-mariadb", long, barResetsMariaDB, seconds{100, 100, 100}},
		{"2-outage-mariadb", long, barOutageMariaDB, seconds{240, 240, 240}},
		{"3-commits", short, barCommits, seconds{90, 120, 120}},
		{"3-commits-mariadb", regular, barCommitsMariaDB, seconds{90, 120, 120}},
		{"4-paused", long, barPaused, seconds{300, 300, 300}},
		{"4-paused-mariadb", long, barPausedMariaDB, seconds{300, 300, 300}},
		{"5-killers", short, barKillers, seconds{60, 90, 90}},
		{"5-killers-mariadb", long, barKillersMariaDB, seconds{60, 90, 90}},
		{"6-misdeeds", regular, barMisdeeds, seconds{120, 120, 120}},
		{"6-cycles", regular, barCycles, seconds{120, 120, 120}},
		{"6-storm", regular, barStorm, seconds{60, 90, 600}},
		{"6-return", regular, barReturn, seconds{60, 90, 150}},
		{"6-comeback", regular, barComeback, seconds{60, 60, 60}},
		{"6-misdeeds-mariadb", long, barMisdeedsMariaDB, seconds{120, 120, 120}},
		{"6-cycles-mariadb", long, barCyclesMariaDB, seconds{120, 120, 120}},
		{"7-sigterm", regular, barSigterm, seconds{360, 60, 360}},
		{"7-sigterm-mariadb", long, barSigtermMariaDB, seconds{360, 60, 360}},
		{"8-pool-refused", long, barPoolRefused, seconds{30, 30, 30}},
		{"8-pool-used", long, barPoolUsed, seconds{90, 90, 90}},
		{"8-pool-refused-mariadb", long, barPoolRefusedMariaDB, seconds{30, 30, 30}},
		{"8-pool-used-mariadb", long, barPoolUsedMariaDB, seconds{90, 90, 90}},
		{"8-read-only", long, barReadOnly, seconds{120, 120, 120}},
		{"8-read-only-mariadb", long, barReadOnlyMariaDB, seconds{120, 120, 120}},
		{"8-black-hole", long, barBlackHole, seconds{180, 180, 180}},
		{"8-black-hole-mariadb", long, barBlackHoleMariaDB, seconds{180, 180, 180}},
		{"8-latency", long, barLatency, seconds{150, 150, 150}},
		{"8-latency-mariadb", long, barLatencyMariaDB, seconds{150, 150, 150}},
		{"8-vanished", long, barVanished, seconds{60, 60, 60}},
		{"8-vanished-mariadb", long, barVanishedMariaDB, seconds{60, 60, 60}},
		{"8-disk-full", long, barDiskFull, seconds{120, 120, 120}},
		{"8-disk-full-mariadb", long, barDiskFullMariaDB, seconds{120, 120, 120}},
		{"9-insert-ids", regular, barInsertIDs, seconds{150, 60, 150}},
		{"9-insert-ids-mariadb", long, barInsertIDsMariaDB, seconds{150, 60, 150}},
		{"9-isolation", regular, barIsolation, seconds{150, 180, 900}},
		{"9-isolation-mariadb", long, barIsolationMariaDB, seconds{180, 180, 180}},
		{"9-pgbouncer", long, barPgbouncer, seconds{900, 900, 900}},
		{"10-deploy", long, barDeploy, seconds{240, 240, 240}},
		{"10-deploy-mariadb", long, barDeployMariaDB, seconds{120, 120, 120}},
		{"11-schedules", long, barSchedules, seconds{240, 240, 240}},
		{"11-schedules-mariadb", long, barSchedulesMariaDB, seconds{240, 240, 240}},
		{"12-hostile", long, barHostile, seconds{600, 600, 600}},
		{"14-kills", short, barRelayKills, seconds{60, 150, 150}},
		{"14-inbox", regular, barRelayInbox, seconds{60, 120, 400}},
		{"14-partial", regular, barRelayPartial, seconds{30, 30, 30}},
		{"14-outage", regular, barRelayOutage, seconds{60, 200, 2400}},
		{"14-leader", regular, barRelayLeader, seconds{120, 200, 400}},
		{"14-order", regular, barRelayOrder, seconds{120, 240, 900}},
		{"14-quorum", apart, barRelayQuorum, seconds{240, 240, 600}},
		{"14-move", regular, barRelayMove, seconds{60, 120, 300}},
		{"14-soak", regular, barRelaySoak, seconds{90, 180, 4200}},
		{"15-order", short, barOrder, seconds{90, 150, 600}},
		{"15-order-mariadb", long, barOrderMariaDB, seconds{90, 150, 150}},
		{"15-limits", regular, barLimits, seconds{90, 120, 400}},
		{"15-per-key", regular, barPerKey, seconds{90, 120, 400}},
		{"15-rates", regular, barRates, seconds{60, 90, 400}},
		{"16-stress", short, barStress, seconds{60, 120, 1000}},
		{"13-model", short, barModel, seconds{90, 150, 600}},
		{"13-differential", long, barDifferential, seconds{60, 60, 660}},
	}
}
