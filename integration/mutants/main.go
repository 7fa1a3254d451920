//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// together is how many runs go on at a time: while one waits for a lease to end,
// another is compiled.
const together = 3

func main() {
	only := flag.String("only", "", "run only mutants whose name matches this regular expression")
	flag.Parse()
	if err := run(*only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string) error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	names, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	chosen := slices.DeleteFunc(mutants(), func(m mutant) bool { return !names.MatchString(m.name) })
	if len(chosen) == 0 {
		return fmt.Errorf("-only %q: no mutant has such a name", only)
	}
	for _, m := range chosen {
		if _, err := m.apply(root); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	// Without any mistake first: tests that fail anyway catch nothing.
	suites := make(map[suite][]mutant)
	for _, m := range chosen {
		suites[m.suite] = append(suites[m.suite], m)
	}
	var jobs []job
	for s, of := range suites {
		jobs = append(jobs, job{"no mutant: " + s.String(), func() (string, error) { return "passed", s.healthy(root, of) }})
	}
	if err := each(jobs); err != nil {
		return fmt.Errorf("nothing can be said of mutants while the tests fail without them: %w", err)
	}
	jobs = nil
	for _, m := range chosen {
		jobs = append(jobs, job{m.name, func() (string, error) { return m.hunt(root) }})
	}
	if err := each(jobs); err != nil {
		return err
	}
	fmt.Printf("mutants: all %d caught\n", len(chosen))
	return nil
}

// job is one run of tests. do returns what is to be told of it.
type job struct {
	name string
	do   func() (string, error)
}

// each does all jobs, some at a time, and tells how each went.
func each(jobs []job) error {
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
			fmt.Printf("mutants: %-42s %s (%.0fs)\n", j.name, verdict, time.Since(begun).Seconds())
		})
	}
	all.Wait()
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d went wrong: %s", len(bad), len(jobs), strings.Join(bad, ", "))
	}
	return nil
}

// findRoot is the directory of go.work, from here upwards.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("go.work was not found: run this inside the repository")
}

// healthy runs the tests without a mistake. They must pass, and not say what they
// are to say of one.
func (s suite) healthy(root string, mutants []mutant) error {
	output, _, err := s.run(root, "", nil)
	if err != nil && s.bar != "" { // processes that are killed need time, which the machine may not have had
		output, _, err = s.run(root, "", nil)
	}
	if err == nil && strings.Contains(output, "no tests to run") {
		err = errors.New("there are no such tests")
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	for _, m := range mutants {
		if line := m.expected().FindString(output); line != "" {
			return fmt.Errorf("the tests say of no mutant what they are to say of %q: %s", m.name, line)
		}
	}
	return nil
}

// hunt runs the tests with the mistake, until one says what it is to say.
func (m mutant) hunt(root string) (verdict string, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return "", err
	}
	output, line, err := m.run(root, overlay, m.expected())
	switch {
	case line != "":
		return "caught: " + strings.TrimSpace(line), nil
	case err == nil:
		return "", fmt.Errorf("survived %s", m.suite)
	}
	return "", fmt.Errorf("%s failed, but nowhere said %q: %w\n%s", m.suite, m.says, err, output)
}

// overlay writes the files with the mistake into a directory, and the list of them that the compiler takes.
func (m mutant) overlay(root, dir string) (list string, err error) {
	texts, err := m.apply(root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string, len(texts))
	for file, text := range texts {
		mutated := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = mutated
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, content, 0o600)
}

// expected matches the line in which a test says what is wrong.
func (m mutant) expected() *regexp.Regexp { return regexp.MustCompile(`(?m)^.*(?:` + m.says + `).*$`) }

// run runs the tests, through an overlay if there is one, and ends them when they
// have said something that matches.
func (s suite) run(root, overlay string, until *regexp.Regexp) (output, line string, err error) {
	dir, err := os.MkdirTemp("", "mutant-run") // whoever is killed leaves files behind
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", s.arguments(overlay)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "TMPDIR="+dir)
	if overlay != "" { // by the environment, so that a program which a test builds has the mistake, too
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to end it with all that it started
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return "", "", err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return "", "", err
	}
	var all strings.Builder
	for lines := bufio.NewReader(pipe); ; {
		text, err := lines.ReadString('\n')
		all.WriteString(text)
		if until != nil && until.MatchString(text) {
			line = text
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			break
		}
		if err != nil {
			break
		}
	}
	return all.String(), line, cmd.Wait()
}

func (s suite) arguments(overlay string) []string {
	args := []string{"test", "-v", "-count=1", "-vet=off", "-timeout=5m", "-run", s.tests}
	if overlay != "" {
		args = append(args, "-failfast")
	}
	args = append(args, s.pkg)
	if s.bar != "" {
		args = append(args, "-args", "-tier", "short", "-bar", s.bar)
	}
	if s.all {
		args = append(args, "-args", "-all")
	}
	return args
}
