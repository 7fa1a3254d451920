//go:build unix

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"
)

func main() {
	only := flag.String("only", "", "run only mutants whose name matches this regular expression")
	sample := flag.Int("sample", 0, "run that many mutants, chosen at random")
	parallel := flag.Int("parallel", 6, "run that many mutants at a time: most tests wait more than they work")
	seed := flag.Uint64("seed", 0, "choose the sample by this seed (default: a new one)")
	baseline := flag.Bool(
		"baseline", false, "run the tests without mutants first: they must pass, and not print what they are to print about one",
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, options{*only, *sample, *seed, *parallel, *baseline}); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

// options are what the command line asks for.
type options struct {
	only     string
	sample   int
	seed     uint64
	parallel int
	baseline bool
}

func run(ctx context.Context, o options) error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	names, err := regexp.Compile(o.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	chosen := slices.DeleteFunc(mutants(), func(m mutant) bool { return !names.MatchString(m.name) })
	if len(chosen) == 0 {
		return fmt.Errorf("-only %q: no mutant has such a name", o.only)
	}
	if o.sample > 0 {
		chosen = sampled(chosen, o.sample, o.seed)
	}
	code, err := readSource(root)
	if err != nil {
		return err
	}
	for _, m := range chosen {
		if _, err := m.mistake.apply(code); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	r, err := newRunner(code, o.parallel)
	if err != nil {
		return err
	}
	defer r.close()
	begun := time.Now()
	if err := r.run(ctx, chosen, o.baseline); err != nil {
		return err
	}
	fmt.Printf("mutants: all %d caught (%.0fs)\n", len(chosen), time.Since(begun).Seconds())
	return nil
}

// sampled chooses n mutants, and prints the seed that chooses the same ones again.
func sampled(all []mutant, n int, seed uint64) []mutant {
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	fmt.Printf("mutants: -sample %d -seed %d\n", n, seed)
	chance := rand.New(rand.NewPCG(seed, 0))
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// findRoot returns the directory of go.work, from here upwards.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.work"))
		if err == nil {
			return dir, nil
		}
	}
	return "", errors.New("go.work was not found: run this inside the repository")
}
