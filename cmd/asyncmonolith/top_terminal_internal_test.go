package main

// It is of package main beside the other tests of the command, which it runs on a terminal.

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// screen is a terminal on which the command runs.
type screen struct {
	t      *testing.T
	socket string
}

// onTerminal starts a command of a shell on a terminal of that size.
func onTerminal(t *testing.T, width, height int, command string) screen {
	t.Helper()
	s := screen{t, filepath.Join(t.TempDir(), "tmux")}
	s.tmux("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height), command)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", s.socket, "kill-server").Run() }) // it may have ended
	return s
}

func (s screen) tmux(args ...string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), "tmux", append([]string{"-S", s.socket}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

// shows waits until the screen shows something, or until it does not, with a "!" before it.
func (s screen) shows(what ...string) string {
	s.t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		text := s.tmux("capture-pane", "-p")
		if !slices.ContainsFunc(what, func(what string) bool {
			not, is := strings.CutPrefix(what, "!")
			return strings.Contains(text, not) == is
		}) {
			return text
		}
		select {
		case <-timeout:
			s.t.Fatalf("want %q, got\n%s", what, text)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s screen) press(keys ...string) {
	s.t.Helper()
	s.tmux(append([]string{"send-keys"}, keys...)...)
}

// built builds the command, and makes a demo database for it.
func built(t *testing.T) (command, database string) {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("it needs tmux: scripts/need-tmux.sh")
	}
	dir := t.TempDir()
	command, database = filepath.Join(dir, "asyncmonolith"), filepath.Join(dir, "shop.db")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", command, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), command, "demo", "--path", database).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return command, "sqlite:" + database
}

// stable is what of a screen is the same each time: words without digits, up to the first empty line
// behind those of the table.
func stable(text string) string {
	digits := regexp.MustCompile(`\S*\d\S*`)
	var lines []string
	for i, line := range strings.Split(text, "\n") {
		if i > 2 && strings.TrimSpace(line) == "" {
			break
		}
		lines = append(lines, strings.Join(strings.Fields(digits.ReplaceAllString(line, " ")), " "))
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestTopOnATerminal(t *testing.T) {
	command, dsn := built(t)
	start := "ASYNCMONOLITH_DSN=" + dsn + " " + command + " top --show-payloads --interval 300ms; echo over $?; read wait"

	t.Run("views", func(t *testing.T) {
		s := onTerminal(t, 200, 36, start)
		got := stable(s.shows("FAILING NOW", "OPERATIONS", "paused by ada", "3 alive, 1 lost"))
		file := filepath.Join("testdata", "top.txt")
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(file); err != nil || string(want) != got {
			t.Errorf("%v; got\n%s\nwant (UPDATE=1 writes it)\n%s", err, got, want)
		}
		s.press("2")
		s.shows("fingerprint", "CONSUMER", "LAST", "card declined", "nil pointer", "!READY")
		s.press("3")
		s.shows("STATUS", "worker-4", "lost", "v1.7.2", "v1.8.0", "failed again", "!READY")
		s.press("?")
		s.shows("Press any key to go back", "!STATUS")
		s.press("x")
		s.shows("STATUS")
		s.press("1", "s")
		s.shows("READY▾")
		s.press("q")
		s.shows("over 0", "!READY")
	})
	t.Run("resized", func(t *testing.T) {
		s := onTerminal(t, 120, 30, start)
		s.shows("P99", "DELAYED", "OLDEST", "paused by")
		s.tmux("set-option", "-g", "window-size", "manual")
		s.tmux("resize-window", "-x", "50", "-y", "14")
		s.shows("READY", "!P99", "!DELAYED", "!paused by")
		s.tmux("resize-window", "-x", "140", "-y", "40")
		s.shows("P99", "OPERATIONS", "paused by")
		s.press("C-c")
		s.shows("over 0")
	})
	t.Run("pause", func(t *testing.T) {
		s := onTerminal(t, 150, 30, start)
		s.shows("charge-card")
		s.press("p")
		s.shows("Pause charge-card: why?")
		s.press("-l", "the till is broken")
		s.press("Enter")
		s.shows("Pause charge-card (the till is broken)?")
		s.press("y")
		s.shows("charge-card is paused", "paused by cli:")
		s.press("p")
		s.shows("Resume charge-card: why?")
		s.press("-l", "mended")
		s.press("Enter")
		s.shows("y yes")
		s.press("y")
		s.shows("charge-card is resumed", "!paused by cli:")
	})
	t.Run("without colours", func(t *testing.T) {
		colour := regexp.MustCompile(`\x1b\[[0-9;]*3[0-8][;m]`)
		for _, c := range []struct {
			env  string
			want bool
		}{{"TERM=screen-256color", true}, {"NO_COLOR=1", false}} {
			s := onTerminal(t, 120, 30, c.env+" "+start)
			s.shows("no live process")
			if got := colour.MatchString(s.tmux("capture-pane", "-p", "-e")); got != c.want {
				t.Errorf("%s: got colours %t, want %t", c.env, got, c.want)
			}
		}
	})
}
