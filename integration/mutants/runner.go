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

// builders is how many mutants are compiled at a time.
const builders = 2

// runner runs tests against mutants.
type runner struct {
	code     *source
	out      io.Writer
	dir      string // of the tests' programs
	parallel int
	builders chan struct{}

	mu       sync.Mutex
	programs map[string]*program // by package
}

func newRunner(code *source, parallel int) (*runner, error) {
	dir, err := os.MkdirTemp("", "mutants")
	return &runner{
		code: code, out: os.Stdout, dir: dir, parallel: parallel, builders: make(chan struct{}, builders), programs: make(map[string]*program),
	}, err
}

func (r *runner) close() { _ = os.RemoveAll(r.dir) }

// run reports an error if a mutant is not caught. make test has run the tests without mutants, which takes as long as
// with them; baseline does so once more.
func (r *runner) run(ctx context.Context, chosen []mutant, baseline bool) error {
	if baseline {
		if err := r.each(ctx, r.healthyJobs(ctx, chosen)); err != nil {
			return fmt.Errorf("nothing can be said of mutants while the tests fail without them: %w", err)
		}
	}
	var jobs []job
	for _, m := range longestFirst(chosen) {
		jobs = append(jobs, job{m.name, func() (string, error) { return r.hunt(ctx, m) }})
	}
	return r.each(ctx, jobs)
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

// each does all jobs, some at a time, and prints the result of each. It begins none once the context has ended.
func (r *runner) each(ctx context.Context, jobs []job) error {
	var mu sync.Mutex
	var bad []string
	var all sync.WaitGroup
	slots := make(chan struct{}, r.parallel)
	for _, j := range jobs {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
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
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d failed: %s", len(bad), len(jobs), strings.Join(bad, ", "))
	}
	return nil
}

// healthyJobs run each suite once without a mistake.
func (r *runner) healthyJobs(ctx context.Context, chosen []mutant) (jobs []job) {
	suites := make(map[suite][]mutant)
	for _, m := range longestFirst(chosen) {
		suites[m.suite] = append(suites[m.suite], m)
		if len(suites[m.suite]) == 1 {
			jobs = append(jobs, job{"no mutant: " + m.suite.String(), func() (string, error) { return "passed", r.healthy(ctx, suites[m.suite]) }})
		}
	}
	return jobs
}

// healthy runs the tests of some mutants, which must pass, and must not print what they are to print about one.
func (r *runner) healthy(ctx context.Context, mutants []mutant) error {
	s := mutants[0].suite
	binary, err := r.program(ctx, s.pkg).healthy()
	if err != nil {
		return err
	}
	output, _, err := r.test(ctx, s, binary, "", nil)
	if err != nil { // a busy machine may not have given it its time
		output, _, err = r.test(ctx, s, binary, "", nil)
	}
	if err == nil && strings.Contains(output, "no tests to run") {
		err = errors.New("there are no such tests")
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	for _, m := range mutants {
		line := m.expected().FindString(output)
		if line != "" {
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
	changed, err := r.write(m, dir)
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	content, err := json.Marshal(map[string]any{"Replace": changed})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, content, 0o600); err != nil {
		return "", err
	}
	binary, err := r.build(ctx, m.pkg, overlay, dir, changed)
	if err != nil {
		return "", fmt.Errorf("does not compile: %w", err)
	}
	output, line, err := r.test(ctx, m.suite, binary, overlay, m.expected())
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

// write puts the files with the mistake into a directory, and returns which file each stands for.
func (r *runner) write(m mutant, dir string) (changed map[string]string, err error) {
	texts, err := m.mistake.apply(r.code)
	if err != nil {
		return nil, err
	}
	changed = make(map[string]string, len(texts))
	for file, text := range texts {
		mutated := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
			return nil, err
		}
		changed[filepath.Join(r.code.root, file)] = mutated
	}
	return changed, nil
}

// build compiles and links the tests of a package with a mistake. What importers of the package see
// may have changed: then the go command does it, which takes longer.
func (r *runner) build(ctx context.Context, pkg, overlay, dir string, changed map[string]string) (binary string, err error) {
	r.builders <- struct{}{}
	defer func() { <-r.builders }()
	binary, err = r.program(ctx, pkg).link(ctx, dir, changed)
	if err == nil {
		return binary, nil
	}
	binary = filepath.Join(dir, "whole.test")
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+overlay, "-o", binary, pkg)
	cmd.Dir = r.code.root
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, output)
	}
	return binary, nil
}

// program returns that of the tests of a package.
func (r *runner) program(ctx context.Context, pkg string) *program {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.programs[pkg] == nil {
		r.programs[pkg] = newProgram(ctx, r.code.root, pkg, r.dir)
	}
	return r.programs[pkg]
}
