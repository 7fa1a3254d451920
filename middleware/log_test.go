package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/middleware"
)

// A recorder is a slog.Handler that keeps the records of its level and above.
type recorder struct {
	level   slog.Level
	notify  func(context.Context) // called for every record, if not nil
	mu      sync.Mutex
	records []slog.Record
}

func newRecorder(level slog.Level) *recorder { return &recorder{level: level} }

func (r *recorder) Enabled(_ context.Context, level slog.Level) bool { return level >= r.level }

func (r *recorder) Handle(ctx context.Context, record slog.Record) error {
	if r.notify != nil {
		r.notify(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, record.Clone())
	return nil
}

func (r *recorder) WithAttrs([]slog.Attr) slog.Handler { panic("not used") }
func (r *recorder) WithGroup(string) slog.Handler      { panic("not used") }

// take returns the records so far, each as "LEVEL message key=value ...", and forgets them.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for _, record := range r.records {
		line := fmt.Sprintf("%s %s", record.Level, record.Message)
		record.Attrs(func(a slog.Attr) bool { line += fmt.Sprintf(" %s=%s", a.Key, a.Value); return true })
		lines = append(lines, line)
	}
	r.records = nil
	return lines
}

// loud is an error that says at which level it is logged.
type loud struct{ error }

func (loud) Level() slog.Level { return slog.LevelWarn }

func TestLogWritesOneLinePerOutcome(t *testing.T) {
	t.Parallel()
	const (
		facts = " message_id=0198c2f4-5f6e-7abc-8def-0123456789ab consumer=send-invoice payload_type=invoice.due attempt=3 outcome="
		took  = " duration=2s"
	)
	tests := []struct {
		name string
		err  error
		want string
	}{
		{"success", nil, "INFO message done" + facts + bus.Done.String() + took},
		{"a snooze", bus.Snooze(time.Minute), "INFO message snoozed" + facts + bus.Snoozed.String() + took + " delay=1m0s"},
		{"a snooze that is to be seen", &bus.OutcomeError{Outcome: bus.Snoozed, Delay: time.Minute, Err: loud{errMail}},
			"WARN message snoozed" + facts + bus.Snoozed.String() + took + " delay=1m0s error=mail server is down"},
		{"a release", &bus.OutcomeError{Outcome: bus.Released, Err: bus.ErrStopping},
			"INFO message released" + facts + bus.Released.String() + took + " error=bus: processor is stopping"},
		{"a discard", bus.Discard(errMail), "WARN message discarded" + facts + bus.Discarded.String() + took + " error=mail server is down"},
		{"a retry", bus.RetryAfter(time.Hour, errMail),
			"WARN message failed, will be retried" + facts + bus.Retried.String() + took + " delay=1h0m0s error=mail server is down"},
		{"a wrapped retry", fmt.Errorf("send: %w", bus.RetryAfter(time.Hour, errMail)),
			"WARN message failed, will be retried" + facts + bus.Retried.String() + took + " delay=1h0m0s error=send: mail server is down"},
		{"an unclassified error", errMail, "WARN message failed, will be retried" + facts + bus.Errored.String() + took +
			" error=mail server is down"},
		{"a verdict nobody carried out", bus.Permanent(errMail),
			"WARN message failed, will be retried" + facts + bus.Condemned.String() + took + " reason=permanent error error=mail server is down"},
		{"a poisoned message", &bus.OutcomeError{Outcome: bus.Poisoned, Reason: "attempt 5 of 5 failed", Err: errMail},
			"ERROR message poisoned" + facts + bus.Poisoned.String() + took + " reason=attempt 5 of 5 failed error=mail server is down"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				lines := newRecorder(slog.LevelDebug)
				m := delivery(3)
				m.ID, _ = uuid.Parse("0198c2f4-5f6e-7abc-8def-0123456789ab")
				handler := middleware.Log(slog.New(lines))(func(context.Context, *bus.Message) error {
					<-time.After(2 * time.Second)
					return test.err
				})
				if got := handler(t.Context(), m); got != test.err {
					t.Errorf("got error %v, want the very one the handler returned, %v", got, test.err)
				}
				if got := lines.take(); !slices.Equal(got, []string{test.want}) {
					t.Errorf("got lines  %q\nwant one: %q", got, test.want)
				}
			})
		})
	}
}

func TestLogPassesTheContextOn(t *testing.T) {
	t.Parallel()
	lines := newRecorder(slog.LevelDebug)
	var current *bus.Message
	lines.notify = func(ctx context.Context) { current, _ = bus.MessageFromContext(ctx) }
	m := delivery(1)
	_ = middleware.Log(slog.New(lines))(returns(nil))(bus.ContextWithMessage(t.Context(), m), m)
	if current != m {
		t.Errorf("the log handler's context: got message %v, want the one being run", current)
	}
}

func TestLogHeedsTheLevel(t *testing.T) {
	t.Parallel()
	outcomes := map[string]error{"info": nil, "warn": errMail, "error": &bus.OutcomeError{Outcome: bus.Poisoned}}
	tests := []struct {
		name  string
		level slog.Level
		want  []string
	}{
		{"everything", slog.LevelInfo, []string{"info", "warn", "error"}},
		{"warnings and errors", slog.LevelWarn, []string{"warn", "error"}},
		{"errors only", slog.LevelError, []string{"error"}},
		{"nothing", slog.LevelError + 1, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for name, err := range outcomes {
				lines := newRecorder(test.level)
				run(t, delivery(1), returns(err), middleware.Log(slog.New(lines)))
				if got, want := len(lines.take()), slices.Contains(test.want, name); (got == 1) != want || got > 1 {
					t.Errorf("%s: got %d lines, want one %t", name, got, want)
				}
			}
		})
	}
}

// An expensive is an error whose text costs something.
type expensive struct{ calls *int }

func (e expensive) Error() string { *e.calls++; return strings.Repeat("x", 1<<10) }

// Not parallel: allocations are counted for the whole process.
func TestLogCostsNothingWhenDisabled(t *testing.T) {
	calls := 0
	lines := newRecorder(slog.LevelError + 1)
	m := delivery(1)
	ctx := t.Context()
	for name, err := range map[string]error{
		"success": nil, "a retry": &bus.OutcomeError{Outcome: bus.Retried, Delay: 1, Err: expensive{&calls}},
		"a poisoned message": &bus.OutcomeError{Outcome: bus.Poisoned, Reason: "reason", Err: expensive{&calls}},
	} {
		handler := middleware.Log(slog.New(lines))(returns(err))
		if got := testing.AllocsPerRun(100, func() { _ = handler(ctx, m) }); got != 0 {
			t.Errorf("%s: got %v allocations, want none", name, got)
		}
	}
	if calls != 0 || len(lines.take()) != 0 {
		t.Errorf("the error's text was made %d times, want never", calls)
	}
}

// Not parallel: it replaces the default logger of the process.
func TestLogWithoutALoggerUsesTheDefault(t *testing.T) {
	lines := newRecorder(slog.LevelDebug)
	before := slog.Default()
	slog.SetDefault(slog.New(lines))
	defer slog.SetDefault(before)
	run(t, delivery(1), returns(nil), middleware.Log(nil))
	run(t, delivery(1), returns(nil), middleware.Default(middleware.Options{})...)
	if got := len(lines.take()); got != 2 {
		t.Errorf("got %d lines through slog.Default(), want 2", got)
	}
}

// card is a payload that nothing must be logged of.
type card struct {
	Number  string   `json:"number"`
	Limit   int      `json:"limit"`
	Quoting *quoting `json:"quoting"`
}

func (card) PayloadType() string { return "card" }

type quoting struct{}

func (*quoting) UnmarshalJSON(text []byte) error { return fmt.Errorf("no use for %s", text) }

func TestLogNeverQuotesPayloadOrHeaders(t *testing.T) {
	t.Parallel()
	const canary = "4111-1111-1111-1111" // of which no time of a line has the part -1111
	consume := func(result func() error) bus.Consumer {
		return bus.Consume("charge", func(context.Context, card) error { return result() })
	}
	tests := []struct {
		name    string
		payload string
		result  func() error
		want    string
	}{
		{"success", `{"number":"` + canary + `"}`, func() error { return nil }, "message done"},
		{"an error", `{"number":"` + canary + `"}`, func() error { return errMail }, "will be retried"},
		{"a panic", `{"number":"` + canary + `"}`, func() error { panic("boom") }, "handler panicked: boom"},
		{"a permanent error", `{"number":"` + canary + `"}`, func() error { return bus.Permanent(errMail) }, "message poisoned"},
		{"a snooze", `{"number":"` + canary + `"}`, func() error { return bus.Snooze(time.Second) }, "message snoozed"},
		{"a syntax error in the payload", `{"number":` + canary, nil, "malformed JSON"},
		{"a payload of the wrong type", `{"limit":"` + canary + `"}`, nil, "does not fit Go type int"},
		{"an UnmarshalJSON that quotes its input", `{"quoting":"` + canary + `"}`, nil, "text withheld"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var text, asJSON bytes.Buffer
			all := &slog.HandlerOptions{Level: slog.LevelDebug, AddSource: true}
			for _, logger := range []*slog.Logger{slog.New(slog.NewTextHandler(&text, all)), slog.New(slog.NewJSONHandler(&asJSON, all))} {
				m := delivery(1)
				m.Payload, m.Headers = []byte(test.payload), map[string]string{"card": canary, canary: "card"}
				chain := middleware.Default(middleware.Options{Logger: logger})
				run(t, m, func(ctx context.Context, m *bus.Message) error {
					return consume(test.result).Consume(ctx, bus.JSON{}, m.Payload)
				}, chain...)
			}
			for _, got := range []string{text.String(), asJSON.String()} {
				if strings.Contains(got, "-1111") {
					t.Errorf("got line %s, want nothing of payload and headers in it", got)
				}
				if !strings.Contains(got, test.want) {
					t.Errorf("got line %s, want %q in it", got, test.want)
				}
			}
		})
	}
}

func TestLogNamesTheEvent(t *testing.T) {
	t.Parallel()
	lines := newRecorder(slog.LevelInfo)
	h := middleware.Log(slog.New(lines))(func(context.Context, *bus.Message) error { return nil })
	for want, m := range map[string]*bus.Message{
		" stream=account-1 event_version=3 position=7 mode=replay": {Event: &bus.Event{Stream: "account-1", Version: 3, Position: 7,
			Replay: true}},
		" stream=account-1 event_version=3": {Event: &bus.Event{Stream: "account-1", Version: 3}}, // not numbered yet
	} {
		if err := h(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if got := lines.take(); len(got) != 1 || !strings.HasSuffix(got[0], want) {
			t.Errorf("lines: got %q, want one that ends with %q", got, want)
		}
	}
}

// absent is an error whose Level panics, being a nil pointer.
type absent struct{ level slog.Level }

func (a *absent) Error() string     { return "absent" }
func (a *absent) Level() slog.Level { return a.level }

// TestAnErrorThatCannotSayItsLevelIsLogged, and what it is an error of goes on as ever.
func TestAnErrorThatCannotSayItsLevelIsLogged(t *testing.T) {
	t.Parallel()
	log := newRecorder(slog.LevelInfo)
	handle := middleware.Log(slog.New(log))(func(context.Context, *bus.Message) error { return bus.Permanent((*absent)(nil)) })
	err := handle(t.Context(), &bus.Message{})
	if v := bus.OutcomeOf(err); v.Outcome != bus.Condemned {
		t.Errorf("got %v, want the handler's verdict", err)
	}
	if lines := log.take(); len(lines) != 1 || !strings.HasPrefix(lines[0], "WARN message failed") {
		t.Errorf("got the lines %q, want one at the level of its outcome", lines)
	}
}
