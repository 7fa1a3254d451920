package model

import (
	"errors"
	"flag"
	"strconv"

	"pgregory.net/rapid"
)

// Explore lets rapid draw that many runs, of about so many steps, beginning with
// the seed. rapid reads its settings from flags only.
func Explore(t rapid.TB, seed uint64, runs, steps int, run func(t *rapid.T)) {
	t.Helper()
	err := errors.Join(flag.Set("rapid.checks", strconv.Itoa(runs)), flag.Set("rapid.seed", strconv.FormatUint(seed, 10)),
		flag.Set("rapid.steps", strconv.Itoa(steps)), flag.Set("rapid.nofailfile", "true"))
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, run)
}
