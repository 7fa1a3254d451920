package console_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
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

// TestAConsumersPayloads are on its page as a processor has reported them, as text.
func TestAConsumersPayloads(t *testing.T) {
	t.Parallel()
	db := migrated(t, testdb.SQLite(t))
	_, err := db.NewRaw(`INSERT INTO message_processes (id, kind, host, pid, program, version, started_at, seen_at, manifest, state, contract)
		VALUES ('p', 'processor', 'web-1', 1, 'shop', 'v1', 0, CAST(unixepoch('subsec') * 1000000 AS INTEGER), '{}', '{}', ?)`,
		`{"consumers":{"mail":{"payloads":["order.placed"]}},"payloads":{"order.placed":{"schema_version":2,
		"schema":{"type":"object","properties":{"<b>id":{"type":"string"}}}}}}`).Exec(t.Context())
	testapp.OK(t, err)
	s := newSite(t, db, ops.Viewer)
	page := s.must("consumer?name=mail").body
	for _, want := range []string{"order.placed, schema 2", "&#34;type&#34;: &#34;object&#34;"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "<b>id") {
		t.Error("the page has a field's name as markup")
	}
	if other := s.must("consumer?name=other").body; strings.Contains(other, "JSON Schema") {
		t.Error("the page of a consumer that was not reported has a schema")
	}
}
