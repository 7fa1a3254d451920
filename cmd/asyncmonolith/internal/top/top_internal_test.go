package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"

	// The screen is looked at as a text, and keys are pressed without a terminal: neither is exported.

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

var update = flag.Bool("update", false, "write the screens of testdata anew")

func noon() time.Time { return time.Date(2026, 11, 23, 12, 0, 30, 0, time.UTC) }

// overview has something of everything, and texts that are up to no good.
func overview() operator.Overview {
	at := noon()
	hour := func(consumer string, done, poisoned int64, run int) (minutes []operator.MinuteStats) {
		for ago := range 60 {
			m := operator.MinuteStats{Consumer: consumer, At: at.Truncate(time.Minute).Add(-time.Duration(ago) * time.Minute), Done: done,
				Poisoned: poisoned}
			m.Run[run], m.Run[run+1], m.Lag[run] = done*95/100, done*5/100, done
			minutes = append(minutes, m)
		}
		return minutes
	}
	processor := admin.Process{ID: "a", Kind: "processor", Host: "worker-1", PID: 4117, Program: "shop", Version: "v1.8.0",
		Status:    admin.ProcessAlive,
		StartedAt: at.Add(-26 * time.Hour), SeenAt: at.Add(-4 * time.Second), Running: 7, Queued: 12, Limit: 64,
		Consumers: []admin.ProcessConsumer{{Name: "charge-card"}, {Name: "receipts"}, {Name: "import", Former: []string{"import-old"}}}}
	old, lost := processor, processor
	old.ID, old.Host, old.PID, old.Version, old.Stuck = "b", "worker-2", 4134, "v1.7.2", []string{"receipts"}
	lost.ID, lost.Host, lost.Status, lost.SeenAt = "c", "worker-3", admin.ProcessLost, at.Add(-4*time.Minute)
	return operator.Overview{
		At: at,
		Queues: []admin.Queue{
			{Consumer: "charge-card", Ready: 1240, Delayed: 3, Leased: 7, Poisoned: 96, OldestReady: 95 * time.Second, BlockedKeys: 2,
				Stops: []admin.Explanation{{Reason: admin.KeyBlocked, Text: "2 keys wait for their poisoned messages"}}},
			{Consumer: "import", Ready: 10_000, OldestReady: 3 * time.Hour, PausedAt: at.Add(-time.Hour), PausedBy: "ada",
				PauseNote: "wrong\x1b[2Jcurrency",
				Stops:     []admin.Explanation{{Reason: admin.Paused, Text: "by ada: wrong\x1b[2Jcurrency", Since: at.Add(-time.Hour)}}},
			{Consumer: "receipts", Leased: 2, Breaker: &admin.OpenBreaker{OpenedAt: at.Add(-9 * time.Minute), Failed: 12, Runs: 20,
				NextProbeAt: at.Add(20 * time.Second)}, Stops: []admin.Explanation{{Reason: admin.CircuitBreakerOpen,
				Text: "12 of 20 runs failed", Since: at.Add(-9 * time.Minute), Until: at.Add(20 * time.Second)}}},
			{Consumer: "send\u202efax\n", Ready: 2, OldestReady: 50 * time.Hour,
				Stops: []admin.Explanation{{Reason: admin.NoLiveProcess, Text: "none has reported in the last 7 days"}}},
		},
		Minutes: append(hour("charge-card", 600, 4, 5), hour("receipts", 60, 0, 10)...),
		Failures: []admin.FailureGroup{
			{Consumer: "charge-card", Fingerprint: "1aa", ErrorType: "*errors.errorString",
				Sample: "charge order 7: amount \"12,50\":\nexpected\x07 digits and a point", Runs: 12345, FirstAt: at.Add(-20 * time.Minute),
				LastAt: at.Add(-3 * time.Second), FirstVersion: "v1.8.0", LastID: 99},
			{Consumer: "receipts", Fingerprint: "1bb", ErrorType: "*net.OpError",
				Sample: "dial tcp 10.0.4.25:587: connect: connection refused", Runs: 5, FirstAt: at.Add(-50 * 24 * time.Hour),
				LastAt: at.Add(-2 * time.Hour), LastID: 12},
		},
		Processes: []admin.Process{processor, old, lost},
		Operations: []ops.Operation{
			{ID: 12, Action: ops.Requeue, Actor: "ada", Reason: "the mail server is back", State: ops.Running, Changed: 1500,
				CreatedAt: at.Add(-time.Minute),
				Target:    ops.Target{Poisoned: &poison.Filter{Consumer: "receipts"}}, Preview: &ops.Preview{Messages: 10_000, More: true}},
			{ID: 9, Action: ops.Discard, Actor: "grace", State: ops.Paused, Note: "10 of 10 canary messages failed again",
				CreatedAt: at.Add(-time.Hour),
				Target:    ops.Target{Poisoned: &poison.Filter{Consumer: "charge-card"}}, Preview: &ops.Preview{Messages: 88}},
		},
	}
}

// service is one that says what it is told to.
type service struct {
	Service
	overview operator.Overview
	err      error
	did      []string
}

func (d *service) Overview(context.Context) (operator.Overview, error) { return d.overview, d.err }

func (d *service) Pause(_ context.Context, consumer, note string) error {
	d.did = append(d.did, fmt.Sprintf("pause %s: %s", consumer, note))
	return d.err
}

func (d *service) Resume(_ context.Context, consumer, note string) error {
	d.did = append(d.did, fmt.Sprintf("resume %s: %s", consumer, note))
	return d.err
}

func started(t *testing.T, d *service, width, height int) *model {
	m := newModel(t.Context(), Config{Service: d, Every: time.Second,
		Say: func(err error) string { return strings.ReplaceAll(err.Error(), "secret", "xxxxx") }}, d.overview, nil)
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return m
}

// press presses keys, and does what they ask for.
func press(m *model, keys ...string) {
	for _, key := range keys {
		msg := tea.KeyPressMsg{Text: key}
		switch key {
		case "enter":
			msg = tea.KeyPressMsg{Code: tea.KeyEnter}
		case "esc":
			msg = tea.KeyPressMsg{Code: tea.KeyEscape}
		case "backspace":
			msg = tea.KeyPressMsg{Code: tea.KeyBackspace}
		}
		if _, cmd := m.Update(msg); cmd != nil {
			if done, ok := cmd().(changed); ok {
				m.Update(done)
			}
		}
	}
}

func TestScreens(t *testing.T) {
	for _, c := range []struct {
		name          string
		width, height int
		keys          []string
		err           error
	}{
		{"wide", 140, 30, nil, nil}, {"usual", 80, 24, []string{"j"}, nil}, {"narrow", 40, 14, nil, nil}, {"low", 80, 7,
			[]string{"j", "j", "j"}, nil},
		{"failures", 100, 20, []string{"2"}, nil}, {"failures-narrow", 50, 12, []string{"2", "j"}, nil},
		{"processes", 110, 20, []string{"3", "j", "j", "j"}, nil}, {"processes-narrow", 60, 12, []string{"3"}, nil},
		{"help", 80, 24, []string{"?"}, nil}, {"sorted", 80, 10, []string{"s"}, nil},
		{"pause", 80, 12, []string{"p", "b", "a", "d"}, nil}, {"sure", 80, 12, []string{"p", "b", "a", "d", "enter"}, nil},
		{"away", 80, 12, nil, errors.New("dial tcp: secret\x1b[31m refused")},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := started(t, &service{overview: overview()}, c.width, c.height)
			press(m, c.keys...)
			if c.err != nil {
				m.Update(looked{err: c.err})
			}
			screen := m.screen()
			lines := strings.Split(ansi.Strip(screen), "\n")
			for i, line := range lines {
				if ansi.StringWidth(line) > c.width {
					t.Errorf("line %d is wider than %d: %q", i, c.width, line)
				}
				lines[i] = strings.TrimRight(line, " ")
			}
			if len(lines) != c.height {
				t.Errorf("got %d lines, want %d", len(lines), c.height)
			}
			got, file := strings.Join(lines, "\n")+"\n", filepath.Join("testdata", c.name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if want, err := os.ReadFile(file); err != nil || string(want) != got {
				t.Errorf("%v; got\n%s\nwant (go test ./internal/top -update writes it)\n%s", err, got, want)
			}
		})
	}
}

// Whatever is stored, the only commands to the terminal are styles.
func TestStoredTextsAreShownEscaped(t *testing.T) {
	for _, keys := range [][]string{nil, {"2"}, {"3"}, {"j", "j", "j", "p", "x", "enter"}} {
		m := started(t, &service{overview: overview()}, 200, 40)
		press(m, keys...)
		m.Update(looked{err: errors.New("\x1b]0;title\x07")})
		screen := m.screen()
		for _, style := range []string{bold, dim, invert, red, yellow, plain} {
			screen = strings.ReplaceAll(screen, style, "")
		}
		if i := strings.IndexAny(screen, "\x1b\x07\u202e"); i >= 0 {
			t.Errorf("%q: %q", keys, screen[max(i-20, 0):i+10])
		}
	}
}

// The chosen consumer stays chosen, however they are sorted and whoever comes and goes.
func TestTheChosenOneStays(t *testing.T) {
	d := &service{overview: overview()}
	m := started(t, d, 80, 24)
	press(m, "j", "j")
	for range orders() {
		press(m, "s")
		if got := m.queues[m.line[consumers]].Consumer; got != "receipts" {
			t.Errorf("sorted by %s: got %s chosen", orders()[m.order].title, got)
		}
	}
	later := overview()
	later.Queues = append([]admin.Queue{{Consumer: "a-new-one"}}, later.Queues...)
	m.Update(looked{overview: later})
	if got := m.queues[m.line[consumers]].Consumer; got != "receipts" {
		t.Errorf("with a new one before it: got %s chosen", got)
	}
	later.Queues = later.Queues[:1]
	m.Update(looked{overview: later})
	if got := m.queues[m.line[consumers]].Consumer; got != "a-new-one" {
		t.Errorf("when it is gone: got %s chosen", got)
	}
	m.Update(looked{overview: operator.Overview{At: noon()}})
	press(m, "j", "p", "s", "3", "j", "2", "k")
	if m.asked != nil {
		t.Error("with nothing to pause somebody is asked")
	}
}

func TestSorting(t *testing.T) {
	want := map[string]string{"CONSUMER": "charge-card", "READY": "import", "POISONED": "charge-card", "RATE": "charge-card",
		"P99": "receipts", "OLDEST": "send\u202efax\n"}
	m := started(t, &service{overview: overview()}, 80, 24)
	for i, o := range orders() {
		if m.order != i || m.queues[0].Consumer != want[o.title] {
			t.Errorf("by %s: got %q first, want %q", o.title, m.queues[0].Consumer, want[o.title])
		}
		press(m, "s")
	}
}

// A consumer is paused by whoever has said why, and that it is meant.
func TestPausing(t *testing.T) {
	for _, c := range []struct {
		keys []string
		did  []string
		says string
	}{
		{[]string{"p", "b", "a", "x", "backspace", "d", "enter", "y"}, []string{"pause charge-card: bad"}, "charge-card is paused"},
		{[]string{"p", "q", "?", "enter", "y"}, []string{"pause charge-card: q?"}, "charge-card is paused"},
		{[]string{"j", "p", "o", "k", "enter", "y"}, []string{"resume import: ok"}, "import is resumed"},
		{[]string{"p", "b", "enter", "n"}, nil, "Nothing was changed"},
		{[]string{"p", "b", "enter", "enter"}, nil, "Nothing was changed"},
		{[]string{"p", "b", "esc"}, nil, "Nothing was changed"},
		{[]string{"p", "enter", "y"}, nil, "why?"},
		{[]string{"p", " ", "enter", "y"}, nil, "why?"},
		{[]string{"2", "p", "b", "enter", "y"}, nil, ""},
	} {
		d := &service{overview: overview()}
		m := started(t, d, 80, 24)
		press(m, c.keys...)
		if !slices.Equal(d.did, c.did) || !strings.Contains(m.screen(), c.says) {
			t.Errorf("%q: got %q, want %q and %q on\n%s", c.keys, d.did, c.did, c.says, ansi.Strip(m.screen()))
		}
	}
	d := &service{overview: overview(), err: errors.New("forbidden by secret")}
	m := started(t, d, 80, 24)
	press(m, "p", "b", "enter", "y")
	if !strings.Contains(m.screen(), "forbidden by xxxxx") {
		t.Errorf("got\n%s", m.screen())
	}
}

// A database that is away is said to be, with what was known last, until it answers again.
func TestTheDatabaseGoesAndComesBack(t *testing.T) {
	d := &service{overview: overview()}
	if screen := newModel(t.Context(), Config{Say: func(err error) string { return strings.ToUpper(err.Error()) }}, operator.Overview{},
		ops.ErrBusy).screen(); !strings.Contains(screen, "TOO MANY CONCURRENT") || !strings.Contains(screen, "Loading") {
		t.Errorf("if it was busy from the start: got\n%s", screen)
	}
	m := started(t, d, 100, 24)
	ask := func() string {
		_, cmd := m.Update(lookNow{})
		if _, next := m.Update(cmd()); next == nil {
			t.Fatal("nobody looks again")
		}
		return ansi.Strip(m.screen())
	}
	d.err = errors.New("connection refused")
	if screen := ask(); !strings.Contains(screen, "Stale: connection refused") || !strings.Contains(screen, "charge-card") {
		t.Errorf("while it is away: got\n%s", screen)
	}
	d.err, d.overview.Unseen = nil, []operator.Unseen{{Parts: []string{"queues"}, From: noon(),
		Why: "ops: look: failed to connect to `user=postgres database=postgres`"}}
	if screen := ask(); !strings.Contains(screen, "Could not be read; shown as of ") ||
		strings.Contains(screen, "postgres") {
		t.Errorf("while it is late: got\n%s", screen)
	}
	d.overview.Unseen, d.overview.At = nil, noon().Add(time.Minute)
	if screen := ask(); strings.Contains(screen, "not be read") || !strings.Contains(screen, "12:01:30 UTC") {
		t.Errorf("when it is back: got\n%s", screen)
	}
}

// Keys and sizes, however odd, break nothing.
func TestAnySizeAndKey(t *testing.T) {
	m := started(t, &service{overview: overview()}, 80, 24)
	for _, key := range []string{"1", "2", "3", "?", "p", "enter", "esc", "j", "G", "g", "k", "tab", "s", "1", "p", "ä", "enter"} {
		for width := range 130 {
			m.Update(tea.WindowSizeMsg{Width: width, Height: width % 31})
			for line := range strings.SplitSeq(m.screen(), "\n") {
				if wide(line) > max(width, 1) {
					t.Fatalf("key %q at %d: got %d cells: %q", key, width, wide(line), line)
				}
			}
		}
		press(m, key)
	}
}

func TestNumbers(t *testing.T) {
	for got, want := range map[string]string{
		count(0): "", count(999): "999", count(1000): "1,000", count(10_000): "10,000+", countAll(1234567): "1,234,567",
		rate(0): "", rate(0.01): "<0.1", rate(3.14): "3.1", rate(1234.5): "1234",
		age(0): "", age(-time.Second): "", age(time.Millisecond): "<1s", age(59 * time.Second): "59s", age(65 * time.Second): "1m05s",
		age(20 * time.Minute): "20m",
		age(90 * time.Minute): "1h30m", age(25 * time.Hour): "25h", age(50 * time.Hour): "2d",
		atMost(0): "", atMost(250 * time.Millisecond): "250ms", atMost(time.Hour): ">10s",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
