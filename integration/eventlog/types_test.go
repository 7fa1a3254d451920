package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/decider"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// movedBefore is what moved was called, and looked like, at first.
type movedBefore struct {
	Cents string `json:"cents"`
}

func (movedBefore) PayloadType() string { return "account.transfer" }

// moved3 is moved in its third form.
type moved3 struct {
	Amount int `json:"amount"`
}

func (moved3) PayloadType() string { return "account.moved" }

func (moved3) Upcasters() []bus.Upcaster {
	return []bus.Upcaster{
		func(_ context.Context, text []byte) ([]byte, error) {
			if bytes.Contains(text, []byte("drop")) {
				return nil, bus.Discard(errors.New("not wanted"))
			}
			return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte(`"cents":"`), []byte(`"amount":"`)), []byte(`"}`), []byte(`0"}`)), nil
		},
		func(_ context.Context, text []byte) ([]byte, error) {
			return bytes.ReplaceAll(bytes.ReplaceAll(text, []byte(`:"`), []byte(`:`)), []byte(`"}`), []byte(`}`)), nil
		},
	}
}

// noUpcaster is an event type with a mistake.
type noUpcaster struct{}

func (noUpcaster) PayloadType() string       { return "account.moved" }
func (noUpcaster) Upcasters() []bus.Upcaster { return []bus.Upcaster{nil} }

func TestTypesReportEveryMistake(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		types []eventlog.Type
		want  []string
	}{
		{"twice", []eventlog.Type{eventlog.Event[moved](), eventlog.Event[moved]()}, []string{"is taken"}},
		{"alias taken", []eventlog.Type{eventlog.Event[moved](), eventlog.Event[opened]("account.moved")},
			[]string{"is taken"}},
		{"pointer", []eventlog.Type{eventlog.Event[*moved]()}, []string{"pointer"}},
		{"nil upcaster", []eventlog.Type{eventlog.Event[noUpcaster]()}, []string{"the upcaster of schema 1 is nil"}},
		{"empty alias", []eventlog.Type{eventlog.Event[moved]("")}, []string{"an alias is empty"}},
		{"zero", []eventlog.Type{{}}, []string{"eventlog.Event"}},
	} {
		_, err := eventlog.NewTypes(c.types...)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", c.name, err, want)
			}
		}
	}
	if _, err := eventlog.NewTypes(eventlog.Event[*moved]()); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("a pointer: got %v, want one mistake", err)
	}
	_, err := types(t).Upcast(t.Context(), "account.moved", 2, nil)
	if want := "schema 2 is unknown, 1 to 1 are known"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a schema of tomorrow: got %v, want %q", err, want)
	}
	other := bus.Consume("other", func(context.Context, movedToo) error { return nil })
	if _, err := (bus.RegistryConfig{Events: types(t)}).NewRegistry(other); err == nil || !strings.Contains(err.Error(), "as an event") {
		t.Errorf("consumer of another Go type: got %v, want an error", err)
	}
}

type movedToo struct{ X int }

func (movedToo) PayloadType() string { return "account.moved" }

// TestOldEventsAreBroughtUpToDate has an old binary write, and a new one read
// them on every path.
func TestOldEventsAreBroughtUpToDate(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		old := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[movedBefore](), eventlog.Event[opened]()))
		before := setup{types: old}.newApp(t, db, bus.Consume("react", func(context.Context, movedBefore) error { return nil }))
		before.append("account-1", eventlog.AnyVersion, movedBefore{"5"}, opened{"ann"}, movedBefore{"drop"})

		now := types3(t)
		got := make(chan string, 10)
		a := setup{types: now}.newApp(t, db, bus.Consume("react", func(ctx context.Context, e moved3) error {
			m, _ := bus.MessageFromContext(ctx)
			got <- fmt.Sprint(e.Amount, m.Event.Schema, m.Event.Version, m.Event.Stream)
			return nil
		}))
		a.append("account-1", 3, moved3{7})
		var read []string
		for _, e := range a.stream("account-1") {
			read = append(read, fmt.Sprint(e.Data, e.Type, e.Schema))
		}
		want := "[{50} account.transfer 1|{ann} account.opened 1|{7} account.moved 3]"
		if text := "[" + strings.Join(read, "|") + "]"; squeeze([]string{text})[0] != squeeze([]string{want})[0] {
			t.Errorf("stream: got %s, want %s", text, want)
		}
		if n := len(a.all(eventlog.Filter{Types: []string{"account.moved"}})); n != 2 {
			t.Errorf("events by their present name: got %d, want 2", n)
		}
		a.process()
		runs := map[string]bool{receive(t, got): true, receive(t, got): true}
		if !runs["50 1 1 account-1"] && !runs["50 1 1account-1"] || len(runs) != 2 {
			t.Errorf("reactor: got %v, want the old event as it is now, and the new one", runs)
		}
		eventually(t, "the dropped event is done without running", func() bool { return a.count("SELECT count(*) FROM consumer_messages") == 0 })

		// The old binary meets what it does not know.
		for _, err := range before.log.ReadStream(a.ctx, db, "account-1", 3) {
			if !isUnknown(err) {
				t.Errorf("an event of tomorrow: got %v, want UnknownTypeError", err)
			}
		}
		for _, err := range a.log.ReadLog(a.ctx, db, 0, eventlog.Filter{Types: []string{"nonsense"}}) {
			if !isUnknown(err) {
				t.Errorf("filter of an unknown type: got %v, want UnknownTypeError", err)
			}
		}
	})
}

// TestAReactorLeavesNewerEventsToNewerProcesses: an older release counts no attempt.
//
// Promise: upcast
func TestAReactorLeavesNewerEventsToNewerProcesses(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		react := bus.Consume("react", func(context.Context, moved) error { return nil }, bus.MaxAttempts(1))
		older := setup{types: types(t)}.newApp(t, db, react)
		newer := setup{types: types3(t)}.newApp(t, db, bus.Consume("react", func(context.Context, moved3) error { return nil }))
		newer.append("account-1", eventlog.NoStream, moved3{7})
		next := func(a *app) {
			t.Helper()
			processor := testapp.Must[*outbox.Processor](t)(outbox.NewProcessor(db, a.registry, outbox.ProcessorConfig{}))
			if ran, err := processor.ProcessNext(t.Context()); !ran || err != nil {
				t.Fatalf("next: got %t, %v, want a run", ran, err)
			}
		}
		next(older)
		if n := older.count("SELECT count(*) FROM consumer_messages WHERE attempts = 0"); n != 1 {
			t.Errorf("messages that wait for a newer process: got %d, want 1", n)
		}
		older.exec("UPDATE consumer_messages SET available_after = created_at")
		next(newer)
		if n := older.count("SELECT count(*) FROM consumer_messages"); n != 0 {
			t.Errorf("messages left by the newer process: got %d, want none", n)
		}
	})
}

// types3 have moved in its third form.
func types3(t *testing.T) *eventlog.Types {
	t.Helper()
	return testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](), eventlog.Event[moved3]("account.transfer")))
}

func TestNewReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := eventlog.NewLog(nil, nil, eventlog.LogConfig{Inline: []eventlog.Inline{nil}})
	for _, want := range []string{"registry is nil", "producer is nil", "Inline[0] is nil"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New of nothing: got %v, want %q", err, want)
		}
	}
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
	producer := testapp.Must[*outbox.Producer](t)(outbox.NewProducer(registry, outbox.ProducerConfig{}))
	if _, err := eventlog.NewLog(registry, producer, eventlog.LogConfig{}); err == nil ||
		!strings.Contains(err.Error(), "RegistryConfig.Events") {
		t.Errorf("New without events: got %v, want an error that says how", err)
	}
}

// TestMistakesInWiringAreErrors has what was not made, since somebody ignored an
// error, and what was made of something else.
func TestMistakesInWiringAreErrors(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a := newApp(t, db)
	_, err := (bus.RegistryConfig{Events: (*eventlog.Types)(nil)}).NewRegistry(consumeMoved("c", func(context.Context, int) {}))
	if err != nil {
		t.Errorf("a registry of nil types: got %v, want that New reports it", err)
	}
	unmade := testapp.Must[*eventlog.Log](t)(eventlog.NewLog(a.registry, (*outbox.Producer)(nil), eventlog.LogConfig{}))
	strange := testapp.Must[*eventlog.Log](t)(eventlog.NewLog(a.registry, newApp(t, db).producer, eventlog.LogConfig{}))
	inline := testapp.Must[*projection.Inline](t)(projection.NewInline(logaccess.Types(a.log), balances()))
	_, both := a.log.Append(a.ctx, db, "", eventlog.AnyVersion, moved{1})
	_, runnerErr := projection.NewRunner(db, new(eventlog.Log), projection.RunnerConfig{})
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"append in no transaction":   {both, "the database handle is a *bun.DB: a transaction is needed"},
		"append to no stream, too":   {both, `stream ""`},
		"append by no producer":      {a.log.RunInTx(a.ctx, db, appendBy(unmade)), "the producer was not made by NewProducer"},
		"append by another's":        {a.log.RunInTx(a.ctx, db, appendBy(strange)), "the producer and the log have different registries"},
		"transaction of nothing":     {a.log.RunInTx(a.ctx, db, nil), "eventlog: run in tx: the function is nil"},
		"runner of an empty log":     {runnerErr, "the log was not made by eventlog.NewLog"},
		"rebuild without a database": {inline.Rebuild(a.ctx, nil, nil), "the database handle is nil"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, c.err, c.want)
		}
	}
}

func appendBy(log *eventlog.Log) func(ctx context.Context, tx bun.Tx) error {
	return func(ctx context.Context, tx bun.Tx) error {
		_, err := log.Append(ctx, tx, "account-1", eventlog.AnyVersion, moved{1})
		return err
	}
}

// TestCategoriesThatNoStreamHas: what they select would be nothing, in silence.
func TestCategoriesThatNoStreamHas(t *testing.T) {
	t.Parallel()
	db := testdb.SQLite(t)
	a := newApp(t, db)
	d := accounts(0)
	d.Category = "bank-account"
	_, _, executed := decider.Execute(a.ctx, a.log, db, d, "1", 5)
	p := balances()
	p.Categories = []string{"account", "bank-account"}
	_, made := projection.NewRunner(db, a.log, projection.RunnerConfig{}, p)
	var read error
	for _, err := range a.log.ReadLog(a.ctx, db, 0, eventlog.Filter{Categories: p.Categories}) {
		read = err
	}
	for name, err := range map[string]error{"decider": executed, "projection": made, "filter": read} {
		if err == nil || !strings.Contains(err.Error(), `"bank-account"`) {
			t.Errorf("%s: got %v, want an error that names the category", name, err)
		}
	}
}
