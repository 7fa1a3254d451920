package console_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// program is the command as users have it, built when the first test wants it.
type program struct {
	once sync.Once
	dir  string
	err  error
}

var command = new(program) // immutable but for its building

func (p *program) path(t testing.TB) string {
	t.Helper()
	p.once.Do(func() {
		if p.dir, p.err = os.MkdirTemp("", "asyncmonolith-command"); p.err != nil {
			return
		}
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(p.dir, "asyncmonolith"), ".")
		build.Dir = filepath.Join("..", "..", "cmd", "asyncmonolith")
		if output, err := build.CombinedOutput(); err != nil {
			p.err = fmt.Errorf("build the command: %w\n%s", err, output)
		}
	})
	if p.err != nil {
		t.Fatal(p.err)
	}
	return filepath.Join(p.dir, "asyncmonolith")
}

func (p *program) remove() error {
	if p.dir == "" {
		return nil
	}
	return os.RemoveAll(p.dir)
}

// startedWith starts a command, and returns the lines of its output as they come; what it says of errors goes elsewhere.
func startedWith(t testing.TB, c *exec.Cmd, errors io.Writer) <-chan string {
	t.Helper()
	c.Stderr = errors
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100) // more than any test reads
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	return lines
}
