package model

import (
	"errors"
	"flag"
	"strconv"

	"pgregory.net/rapid"
)

// Explore lets rapid draw that many runs, of about so many steps, beginning with
// the seed, and fails when there were fewer: rapid gives up quietly when the test's
// time may not suffice. It reads its settings from flags only.
func Explore(t rapid.TB, seed uint64, runs, steps int, run func(t *rapid.T)) {
	t.Helper()
	given := flag.Lookup("rapid.seed").Value.String()
	defer func() { _ = flag.Set("rapid.seed", given) }()
	err := errors.Join(flag.Set("rapid.checks", strconv.Itoa(runs)), flag.Set("rapid.seed", strconv.FormatUint(seed, 10)),
		flag.Set("rapid.steps", strconv.Itoa(steps)), flag.Set("rapid.nofailfile", "true"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	rapid.Check(t, func(t *rapid.T) { run(t); ran++ })
	if ran < runs {
		t.Fatalf("runs: got %d, want %d", ran, runs)
	}
}
