//go:build unix

package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
)

// test runs a suite of a test program, and ends it once it has printed a line that matches.
func (r *runner) test(ctx context.Context, s suite, program, overlay string, until *regexp.Regexp) (output, line string, err error) {
	dir, err := os.MkdirTemp(r.dir, "run") // processes that are killed leave files behind
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, program, s.arguments(until != nil)...)
	cmd.Dir = filepath.Join(r.code.root, s.pkg)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "PWD="+cmd.Dir)
	if overlay != "" { // for programs that a test builds; and what does not happen takes its time to show
		cmd.Env = append(cmd.Env, "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay, "ASYNCMONOLITH_TEST_PATIENCE=20s")
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to end it with all that it started
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
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
			_ = cmd.Cancel()
			break
		}
		if err != nil {
			break
		}
	}
	return all.String(), line, cmd.Wait()
}

// arguments are those for the program. Tests of random runs get three tries to catch a mutant.
func (s suite) arguments(mutated bool) []string {
	args := []string{"-test.v", "-test.timeout=3m", "-test.run=" + s.tests}
	if mutated {
		args = append(args, "-test.failfast")
	}
	switch {
	case s.bar != "":
		args = append(args, "-tier", "short", "-bar", s.bar)
	case mutated:
		args = append(args, "-test.count=3")
	}
	return args
}
