//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	together = 4 // mutants at a time: most tests wait more than they work
	builders = 2 // of them those that are compiled
)

// runner runs tests against mutants.
type runner struct {
	code  *source
	out   io.Writer
	dir   string // of the tests' programs
	build chan struct{}
}

func newRunner(code *source) (*runner, error) {
	dir, err := os.MkdirTemp("", "mutants")
	return &runner{code: code, out: os.Stdout, dir: dir, build: make(chan struct{}, builders)}, err
}

func (r *runner) close() { _ = os.RemoveAll(r.dir) }

// run reports an error if a mutant is not caught.
func (r *runner) run(ctx context.Context, chosen []mutant) error {
	// Without any mistake first: tests that fail anyway catch nothing.
	if err := r.each(r.healthyJobs(ctx, chosen)); err != nil {
		return fmt.Errorf("nothing can be said of mutants while the tests fail without them: %w", err)
	}
	var jobs []job
	for _, m := range longestFirst(chosen) {
		jobs = append(jobs, job{m.name, func() (string, error) { return r.hunt(ctx, m) }})
	}
	return r.each(jobs)
}

// longestFirst has bars begin first, so that none of them is left for the end.
func longestFirst(all []mutant) []mutant {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b mutant) int { return len(b.bar) - len(a.bar) })
	return all
}

// job is one run of tests. do returns what to print about it.
type job struct {
	name string
	do   func() (string, error)
}

// each does all jobs, some at a time, and prints the result of each.
func (r *runner) each(jobs []job) error {
	var mu sync.Mutex
	var bad []string
	var all sync.WaitGroup
	slots := make(chan struct{}, together)
	for _, j := range jobs {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			begun := time.Now()
			verdict, err := j.do()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				bad = append(bad, j.name)
				verdict = "ERROR: " + err.Error()
			}
			fmt.Fprintf(r.out, "mutants: %-42s %s (%.0fs)\n", j.name, verdict, time.Since(begun).Seconds())
		})
	}
	all.Wait()
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d failed: %s", len(bad), len(jobs), strings.Join(bad, ", "))
	}
	return nil
}

// healthyJobs run each suite once without a mistake. The tests of a package are compiled once.
func (r *runner) healthyJobs(ctx context.Context, chosen []mutant) (jobs []job) {
	programs := make(map[string]func() (string, error))
	suites := make(map[suite][]mutant)
	for _, m := range longestFirst(chosen) {
		if programs[m.pkg] == nil {
			programs[m.pkg] = sync.OnceValues(func() (string, error) { return r.compile(ctx, m.pkg, "", r.dir) })
		}
		if suites[m.suite] = append(suites[m.suite], m); len(suites[m.suite]) > 1 {
			continue
		}
		jobs = append(jobs, job{"no mutant: " + m.suite.String(), func() (string, error) {
			program, err := programs[m.pkg]()
			if err != nil {
				return "", err
			}
			return "passed", r.healthy(ctx, m.suite, program, suites[m.suite])
		}})
	}
	return jobs
}

// healthy runs tests that must pass, and must not print what they are to print about a mutant.
func (r *runner) healthy(ctx context.Context, s suite, program string, mutants []mutant) error {
	output, _, err := r.test(ctx, s, program, "", nil)
	if err != nil && s.bar != "" { // a busy machine may not have given its processes their time
		output, _, err = r.test(ctx, s, program, "", nil)
	}
	if err == nil && strings.Contains(output, "no tests to run") {
		err = errors.New("there are no such tests")
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	for _, m := range mutants {
		if line := m.expected().FindString(output); line != "" {
			return fmt.Errorf("without a mutant the tests print what shows %q: %s", m.name, line)
		}
	}
	return nil
}

// hunt runs the tests with the mistake until one prints what it is to print.
func (r *runner) hunt(ctx context.Context, m mutant) (verdict string, err error) {
	dir, err := os.MkdirTemp(r.dir, "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := r.overlay(m, dir)
	if err != nil {
		return "", err
	}
	program, err := r.compile(ctx, m.pkg, overlay, dir)
	if err != nil {
		return "", fmt.Errorf("does not compile: %w", err)
	}
	output, line, err := r.test(ctx, m.suite, program, overlay, m.expected())
	switch {
	case line != "":
		return "caught: " + strings.TrimSpace(line), nil
	case err == nil:
		return "", fmt.Errorf("survived %s", m.suite)
	}
	return "", fmt.Errorf("%s failed without printing %q: %w\n%s", m.suite, m.says, err, output)
}

// expected matches the line in which a test reports the mistake.
func (m mutant) expected() *regexp.Regexp { return regexp.MustCompile(`(?m)^.*(?:` + m.says + `).*$`) }

// overlay writes the files with the mistake, and the list of them that the compiler takes.
func (r *runner) overlay(m mutant, dir string) (list string, err error) {
	texts, err := m.mistake.apply(r.code)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string, len(texts))
	for file, text := range texts {
		mutated := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(r.code.root, file)] = mutated
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, content, 0o600)
}

// compile builds the tests of a package, without what only debuggers need.
func (r *runner) compile(ctx context.Context, pkg, overlay, dir string) (program string, err error) {
	r.build <- struct{}{}
	defer func() { <-r.build }()
	program = filepath.Join(dir, strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "-")+".test")
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", program}
	if overlay != "" {
		args = append(args, "-overlay="+overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = r.code.root
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, output)
	}
	return program, nil
}
