package bustest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
)

type withdrawn struct{ Amount int }

func (withdrawn) PayloadType() string { return "account.withdrawn" }

var errOverdrawn = errors.New("overdrawn")

func till() decider.Decider[int, int, withdrawn] {
	return decider.Decider[int, int, withdrawn]{
		Category: "till",
		Initial:  func() int { return 10 },
		Evolve:   func(balance int, e withdrawn) int { return balance - e.Amount },
		Decide: func(_ context.Context, balance, amount int) ([]withdrawn, error) {
			if amount > balance {
				return nil, errOverdrawn
			}
			if amount == 0 {
				return nil, nil
			}
			return []withdrawn{{amount}}, nil
		},
	}
}

func TestGivenWhenThen(t *testing.T) {
	t.Parallel()
	bustest.Decider(t, till()).Given(withdrawn{4}).When(6).Then(withdrawn{6})
	bustest.Decider(t, till()).Given(withdrawn{4}).When(7).ThenError(errOverdrawn)
	bustest.Decider(t, till()).When(0).Then()
	if state := bustest.Decider(t, till()).Given(withdrawn{4}).When(6).State; state != 0 {
		t.Errorf("state: got %d, want 0", state)
	}
}

type added struct{ Name string }

func (added) PayloadType() string { return "set.added" }

// TestGivenWhenThenKeepsItsHistory where Evolve writes to a map, as it may.
func TestGivenWhenThenKeepsItsHistory(t *testing.T) {
	t.Parallel()
	set := decider.Decider[map[string]bool, string, added]{
		Category: "set",
		Initial:  func() map[string]bool { return map[string]bool{} },
		Evolve:   func(names map[string]bool, e added) map[string]bool { names[e.Name] = true; return names },
		Decide: func(_ context.Context, names map[string]bool, name string) ([]added, error) {
			if names[name] {
				return nil, nil
			}
			return []added{{name}}, nil
		},
	}
	base := bustest.Decider(t, set)
	longer := base.Given(added{"a"})
	base.Given(added{"c"})
	for range 2 {
		base.When("a").Then(added{"a"})
		longer.When("a").Then()
		longer.When("b").Then(added{"b"})
		longer.When("c").Then(added{"c"})
	}
	if state := longer.When("b").State; len(state) != 2 {
		t.Errorf("state: got %v, want a and b", state)
	}
}

// noted is a test that takes failures down.
type noted struct {
	testing.TB
	failures []string
}

func (n *noted) Helper() {}
func (n *noted) Errorf(format string, args ...any) {
	n.failures = append(n.failures, fmt.Sprintf(format, args...))
}
func (n *noted) Fatalf(format string, args ...any) {
	n.Errorf(format, args...)
	runtime.Goexit()
}

func TestGivenWhenThenFails(t *testing.T) {
	t.Parallel()
	n := &noted{TB: t}
	bustest.Decider(n, till()).When(6).Then(withdrawn{5})
	bustest.Decider(n, till()).When(6).Then()
	bustest.Decider(n, till()).When(0).Then(withdrawn{5})
	bustest.Decider(n, till()).When(11).Then(withdrawn{11})
	bustest.Decider(n, till()).When(6).ThenError(errOverdrawn)
	bustest.Decider(n, till()).When(11).ThenError(errors.New("another"))
	bustest.Decider(n, till()).When(6).ThenError(nil)
	if len(n.failures) != 7 || !strings.Contains(n.failures[0], "want [{Amount:5}]") || !strings.Contains(n.failures[6], "use Then") {
		t.Errorf("failures: got %q, want seven", n.failures)
	}
}

// TestStatesThatSnapshotsWouldLoseAreRefused by their type at once, and otherwise with the event that makes them.
func TestStatesThatSnapshotsWouldLoseAreRefused(t *testing.T) {
	t.Parallel()
	type limited struct{ limit int }
	for name, test := range map[string]struct {
		try  func(testing.TB, decider.Snapshots)
		says string
	}{
		"by type": {func(t testing.TB, s decider.Snapshots) {
			bustest.Decider(t, keeping(s, func(_ limited, e withdrawn) limited { return limited{e.Amount} }))
		}, "limited.limit is not exported"},
		"by value": {func(t testing.TB, s decider.Snapshots) {
			bustest.Decider(t, keeping(s, func(float64, withdrawn) float64 { return math.NaN() })).Given(withdrawn{4})
		}, "bustest: Given: state 0: the state cannot be encoded"},
	} {
		for every, want := range []int{0, 1} {
			n, over := &noted{TB: t}, make(chan struct{})
			go func() {
				defer close(over)
				test.try(n, decider.Snapshots{Every: every})
			}()
			if <-over; len(n.failures) != want || want > 0 && !strings.Contains(n.failures[0], test.says) {
				t.Errorf("%s, a snapshot every %d events: got failures %q, want %d: %s", name, every, n.failures, want, test.says)
			}
		}
	}
}

// keeping is a decider with snapshots and some state.
func keeping[S any](s decider.Snapshots, evolve func(S, withdrawn) S) decider.Decider[S, int, withdrawn] {
	return decider.Decider[S, int, withdrawn]{Category: "till", Snapshots: s, Evolve: evolve,
		Decide: func(context.Context, S, int) ([]withdrawn, error) { return nil, nil }}
}
