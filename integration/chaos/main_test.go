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

	"github.com/asyncmonolith/asyncmonolith-go/integration/chaos"
)

var (
	tierFlag = flag.String("tier", "short", "which bars to run, and how long: short, chaos or long")
	seedFlag = flag.Uint64("seed", 0, "the seed of every random choice; 0 takes a new one")
	onlyFlag = flag.String("bar", "", "run only this bar, in whatever tier")
)

func TestMain(m *testing.M) {
	if os.Getenv(chaos.WorkerVariable) != "" {
		os.Exit(chaos.WorkerMain())
	}
	flag.Parse()
	goleak.VerifyTestMain(m)
}

// tier is how thorough a run is.
type tier int

const (
	short   tier = iota // part of make test
	regular             // make chaos
	long                // make chaos-long
)

func tiers() []string { return []string{"short", "chaos", "long"} }

// aBar is one promise and the run that puts it to the test.
type aBar struct {
	name string
	from tier // the first tier that runs it
	run  func(b *bar)
}

// bar is a bar while it runs.
type bar struct {
	*testing.T
	*rand.Rand
	tier tier
	name string
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
			a.run(b)
		})
	}
	if ran == 0 {
		t.Fatalf("-bar: got %q, which no bar is called", *onlyFlag)
	}
}

// bars are all there are.
func bars() []aBar {
	return []aBar{
		{"1-kills", short, barKills},
		{"1-kills-tx", short, barKillsTx},
		{"2-stops", long, barStops},
		{"2-backends", long, barBackends},
		{"2-outage", long, barOutage},
		{"3-commits", short, barCommits},
		{"4-paused", long, barPaused},
		{"5-killers", short, barKillers},
		{"6-misdeeds", regular, barMisdeeds},
		{"6-cycles", regular, barCycles},
		{"7-sigterm", regular, barSigterm},
		{"8-pool-refused", long, barPoolRefused},
		{"8-pool-used", long, barPoolUsed},
		{"8-read-only", long, barReadOnly},
		{"8-black-hole", long, barBlackHole},
		{"8-latency", long, barLatency},
		{"8-vanished", long, barVanished},
		{"8-disk-full", long, barDiskFull},
		{"9-insert-ids", regular, barInsertIDs},
		{"9-isolation", regular, barIsolation},
		{"9-pgbouncer", long, barPgbouncer},
		{"10-deploy", long, barDeploy},
		{"11-schedules", long, barSchedules},
		{"12-hostile", long, barHostile},
		{"13-model", short, barModel},
	}
}
