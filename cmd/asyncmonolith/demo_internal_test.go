package main

// The command has no other way in than its arguments.

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// runDemo runs the command with arguments. What serves until it is ended is ended once it has said where.
func runDemo(ctx context.Context, args ...string) (code int, out, err string) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	stdout, stderr := said{heard: func() {}}, said{heard: func() {}}
	if slices.Contains(args, "serve") {
		stdout.heard = end
	}
	code = run(ctx, args, terminal{in: strings.NewReader(""), out: &stdout, err: &stderr, env: func(string) string { return "" }})
	return code, stdout.String(), stderr.String()
}

// said is what the command has written, of which somebody hears.
type said struct {
	bytes.Buffer
	heard func()
}

func (s *said) Write(text []byte) (int, error) {
	s.heard()
	return s.Buffer.Write(text)
}

// What the demo says is to be tried works.
func TestDemoSaysWhatWorks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "my shop's.db")
	code, out, failed := runDemo(t.Context(), "demo", "--path", path)
	if code != exitDone {
		t.Fatalf("got %d: %s", code, failed)
	}
	if want := "ASYNCMONOLITH_DSN='sqlite:" + strings.ReplaceAll(path, "'", `'\''`) + "'"; !strings.Contains(out, want) {
		t.Errorf("got %s, want it to contain %s", out, want)
	}
	tried := 0
	for line := range strings.Lines(out) {
		words, _, _ := strings.Cut(line, "#")
		args, ok := strings.CutPrefix(strings.TrimSpace(words), "asyncmonolith ")
		if !ok || args == "top" { // which needs a terminal
			continue
		}
		tried++
		code, out, failed := runDemo(t.Context(), append([]string{"--dsn", "sqlite:" + path}, strings.Fields(args)...)...)
		if code != exitDone && code != exitCheckFailed || out == "" {
			t.Errorf("%s: got %d, %s%s", args, code, out, failed)
		}
	}
	if tried == 0 {
		t.Errorf("nothing is to be tried: %s", out)
	}
	code, out, failed = runDemo(t.Context(), "demo", "--path", path, "--force", "--json", "--serve-for", "100ms")
	if code != exitDone || !strings.HasPrefix(out, `{"v":1,"path":"`) {
		t.Errorf("JSON: got %d, %s%s", code, out, failed)
	}
}

func TestDemoRefuses(t *testing.T) {
	mine := filepath.Join(t.TempDir(), "mine.db")
	if err := os.WriteFile(mine, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--path", mine}, "not a demo database"},
		{[]string{"--path", mine, "--force"}, "not a demo database"},
		{[]string{"--path", ""}, "--path"},
		{[]string{"--serve-for", "-1s"}, "--serve-for"},
		{[]string{"--dsn", "sqlite:x"}, "demo makes its own database"},
		{[]string{"--prefix", "x"}, "demo makes its own database"},
		{[]string{"more"}, "no arguments are allowed"},
	} {
		code, out, failed := runDemo(t.Context(), append([]string{"demo"}, c.args...)...)
		if code != exitUsage || out != "" || !strings.Contains(failed, c.says) {
			t.Errorf("%q: got %d, %s%s, want it to say %q", c.args, code, out, failed, c.says)
		}
	}
	if text, err := os.ReadFile(mine); err != nil || string(text) != "mine" {
		t.Errorf("the file was changed: %q, %v", text, err)
	}
}
