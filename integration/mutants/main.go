package main

import (
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
	"time"
)

func main() {
	only := flag.String("only", "", "run only mutants whose name contains this")
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
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var chosen []mutant
	for _, m := range mutants() {
		if strings.Contains(m.name, only) {
			chosen = append(chosen, m)
		}
	}
	if err := healthy(root, chosen); err != nil {
		return err
	}
	var bad []string
	for _, m := range chosen {
		begun := time.Now()
		verdict, err := m.hunt(root, dir)
		if err != nil {
			bad = append(bad, m.name)
			verdict = "ERROR: " + err.Error()
		}
		fmt.Printf("mutants: %-42s %s (%.0fs)\n", m.name, verdict, time.Since(begun).Seconds())
	}
	if len(bad) > 0 {
		return fmt.Errorf("%d of %d were not caught: %s", len(bad), len(chosen), strings.Join(bad, ", "))
	}
	fmt.Printf("mutants: all %d caught\n", len(chosen))
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

// healthy runs the tests without any mistake: one that fails anyway catches
// nothing.
func healthy(root string, chosen []mutant) error {
	patterns := make(map[string][]string)
	for _, m := range chosen {
		if _, err := m.apply(root); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if !slices.Contains(patterns[m.pkg], m.tests) {
			patterns[m.pkg] = append(patterns[m.pkg], m.tests)
		}
	}
	for pkg, all := range patterns {
		for _, pattern := range all {
			if output, err := goTest(root, "", pkg, pattern); err != nil {
				return fmt.Errorf("%s %s fails without a mutant: %w\n%s", pkg, pattern, err, output)
			}
		}
	}
	return nil
}

// hunt runs the tests with the mistake and tells which of them noticed.
func (m mutant) hunt(root, dir string) (verdict string, err error) {
	text, err := m.apply(root)
	if err != nil {
		return "", err
	}
	mutated, overlay := filepath.Join(dir, "mutated.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.file): mutated}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(mutated, []byte(text), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", err
	}
	output, err := goTest(root, overlay, m.pkg, m.tests)
	if err == nil {
		return "", fmt.Errorf("survived %s %s", m.pkg, m.tests)
	}
	failed := regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindAllStringSubmatch(output, -1)
	if len(failed) == 0 {
		return "", fmt.Errorf("no test failed, but go test did: %w\n%s", err, output)
	}
	// The innermost test says most.
	name := slices.MaxFunc(failed, func(a, b []string) int { return strings.Count(a[1], "/") - strings.Count(b[1], "/") })[1]
	return "caught by " + name, nil
}

// goTest runs tests of a package, through an overlay if there is one.
func goTest(root, overlay, pkg, pattern string) (string, error) {
	args := []string{"test", "-count=1", "-vet=off", "-timeout=5m", "-run", pattern}
	if overlay != "" {
		args = append(args, "-overlay", overlay, "-failfast")
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root
	output, err := cmd.CombinedOutput()
	if err == nil && strings.Contains(string(output), "no tests to run") {
		err = errors.New("there are no such tests")
	}
	return string(output), err
}
