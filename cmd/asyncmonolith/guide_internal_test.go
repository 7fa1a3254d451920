package main

// The command has no other way in than its arguments.

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

// session is a block of a guide in which somebody sits at a terminal.
var session = regexp.MustCompile("(?s)```console\n(.*?)```") // immutable

// TestGuide: what docs/operating.md shows of the night is what comes, on the demo database.
func TestGuide(t *testing.T) {
	guide := filepath.Join("..", "..", "docs", "operating.md")
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "demo.db")
	if code, _, failed := runDemo(t.Context(), "demo", "--path", strings.TrimPrefix(dsn, "sqlite:")); code != exitDone {
		t.Fatalf("demo: got %d: %s", code, failed)
	}
	ran := 0
	got := session.ReplaceAllFunc(text, func(block []byte) []byte {
		lines := session.FindSubmatch(block)[1]
		var b strings.Builder
		for line := range strings.Lines(string(lines)) {
			if command, ok := strings.CutPrefix(line, "$ asyncmonolith "); ok {
				ran++
				b.WriteString(line + atTerminal(t, dsn, words(strings.TrimSpace(command))))
			}
		}
		return []byte("```console\n" + b.String() + "```")
	})
	if ran < 5 {
		t.Errorf("got %d commands, want those of the night", ran)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(guide, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	had, has := session.FindAllString(string(text), -1), session.FindAllString(string(got), -1)
	for i := range has {
		if alike(had[i]) != alike(has[i]) {
			t.Errorf("got (UPDATE=1 writes it)\n%s\nwant\n%s", has[i], had[i])
		}
	}
}

// TestFitsATerminal: no listing of the demo database is wider than 80 columns.
func TestFitsATerminal(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "demo.db")
	if code, _, failed := runDemo(t.Context(), "demo", "--path", strings.TrimPrefix(dsn, "sqlite:")); code != exitDone {
		t.Fatalf("demo: got %d: %s", code, failed)
	}
	for _, command := range []string{
		"status --show-payloads", "consumers list", "messages list --limit 1000", "messages blocked-keys", "messages get 551", "explain 551",
		"poisoned groups --show-payloads", "poisoned list --limit 1000 --show-payloads",
		"poisoned get 1845 --show-payloads", "schedules list --show-payloads", "schedules next 2", "processes",
		"projections list --show-payloads", "projections parked balances --show-payloads", "operations list", "operations get 7",
		"requeue --all",
	} {
		said := atTerminal(t, dsn, words(command))
		for line := range strings.Lines(said) {
			if got := ansi.StringWidth(strings.TrimSuffix(line, "\n")); got > 80 {
				t.Errorf("%s: got %d columns, want 80 at most: %s", command, got, line)
			}
		}
		if strings.Count(said, "\n") < 2 {
			t.Errorf("%s: got %q, want more", command, said)
		}
	}
	if said := atTerminal(t, dsn, words("status")); !regexp.MustCompile(`RECENT FAILURES .* RUNS  FIRST +SINCE`).MatchString(said) {
		t.Errorf("status: got %q, want since when and since which release something fails", said)
	}
}

// atTerminal is what a command says on a terminal of 80 columns.
func atTerminal(t *testing.T, dsn string, args []string) string {
	t.Helper()
	var both bytes.Buffer
	run(t.Context(), args, terminal{in: strings.NewReader(""), out: &both, err: &both, width: 80, env: func(string) string { return dsn }})
	return regexp.MustCompile(`cli:[^\s@]+@\w+`).ReplaceAllString(both.String(), "cli:you@laptop")
}

// words are those of a command line with double quotes.
func words(line string) (found []string) {
	for _, word := range regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(line, -1) {
		found = append(found, strings.Trim(word, `"`))
	}
	return found
}

// alike makes the same of what differs from night to night: numbers, and the places of columns.
func alike(text string) string {
	for _, r := range [][2]string{{`[0-9a-f-]{36}`, "uuid"}, {`eyJ[\w-]+`, "place"}, {`cli:\S+`, "cli:somebody"}, {`\d+`, "0"},
		{`0\+0 of`, "0 of"}, {`0(\.0)?(ms|m|h|s)(0s|0m)?`, "0s"}, {`[ \n]+`, " "}} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}
