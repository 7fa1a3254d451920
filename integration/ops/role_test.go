package ops_test

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// closed is a database that answers nothing: what is refused must not come so far.
func closed(t *testing.T) *bun.DB {
	t.Helper()
	db := testdb.SQLite(t)
	testapp.OK(t, db.Close())
	return db
}

// call calls a method with zero values, and returns its error.
func call(method reflect.Value) error {
	arguments := []reflect.Value{reflect.ValueOf(context.Background())}
	for i := 1; i < method.Type().NumIn(); i++ {
		if method.Type().IsVariadic() && i == method.Type().NumIn()-1 {
			break
		}
		arguments = append(arguments, reflect.Zero(method.Type().In(i)))
	}
	results := method.Call(arguments)
	err, _ := results[len(results)-1].Interface().(error)
	return err
}

// methodsOf are the methods of a session, and of what it hands out: "Pause" of consumers is "Consumers.Pause".
func methodsOf(session *operator.Session) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		of := reflect.ValueOf(session)
		for i := range of.NumMethod() {
			name, method := of.Type().Method(i).Name, of.Method(i)
			if method.Type().NumIn() > 0 {
				if !yield(name, method) {
					return
				}
				continue
			}
			handle := method.Call(nil)[0]
			for j := range handle.NumMethod() {
				if !yield(name+"."+handle.Type().Method(j).Name, handle.Method(j)) {
					return
				}
			}
		}
	}
}

// TestEachMethodChecksTheRole: each method of a session asks for the role, before anything else.
func TestEachMethodChecksTheRole(t *testing.T) {
	d := serviceOf(t, closed(t), testapp.Must[*bus.Registry](t)(bus.NewRegistry()))
	sessions := map[string]*operator.Session{
		"no role":      operator.As(d, ops.Principal{Name: "ada"}),
		"no name":      operator.As(d, ops.Principal{Role: ops.Administrator}),
		"unknown role": operator.As(d, ops.Principal{Name: "ada", Role: 17}),
		"not allowed": operator.As(d, ops.Principal{Name: "ada", Role: ops.Administrator,
			Allow: func(ops.Action, string) bool { return false }}),
	}
	for name, session := range sessions {
		for method, value := range methodsOf(session) {
			if err := call(value); !errors.Is(err, ops.ErrForbidden) {
				t.Errorf("%s: %s: got error %v, want ErrForbidden", name, method, err)
			}
		}
	}
}

// TestRoles: what each role may do is what the documentation says.
func TestRoles(t *testing.T) {
	d := serviceOf(t, closed(t), testapp.Must[*bus.Registry](t)(bus.NewRegistry()))
	least := map[string]ops.Role{
		"Consumed.Repeat": ops.Operator,
		"Consumers.Pause": ops.Operator, "Consumers.Resume": ops.Operator, "Consumers.Probe": ops.Operator, "Messages.RunNow": ops.Operator,
		"Messages.Reschedule": ops.Operator, "Poisoned.Requeue": ops.Operator,
		"Projections.Resume": ops.Operator, "Schedules.Trigger": ops.Operator, "Schedules.Pause": ops.Operator, "Schedules.Resume": ops.Operator,
		"Messages.Cancel": ops.Administrator, "Poisoned.Discard": ops.Administrator, "Poisoned.EditAndRequeue": ops.Administrator,
		"Poisoned.CheckEdit": ops.Administrator, "Poisoned.Export": ops.Administrator,
		"Schedules.Delete": ops.Administrator, "Schedules.Update": ops.Administrator, "Operations.Plan": ops.Administrator,
		"Operations.Preview": ops.Administrator, // of no action
	}
	for _, role := range []ops.Role{ops.None, ops.Viewer, ops.Operator, ops.Administrator} {
		for name, method := range methodsOf(operator.As(d, someone(role))) {
			needs, ok := least[name]
			if !ok {
				needs = ops.Viewer
			}
			if forbidden := errors.Is(call(method), ops.ErrForbidden); forbidden != (role < needs) {
				t.Errorf("%s as %s: forbidden is %t, want %t", name, role, forbidden, role < needs)
			}
		}
	}
}

// TestNoGuessing: who does not see what is in contents may not look for it, neither one by one nor in a bulk
// change: a viewer, and everybody where it is hidden.
func TestNoGuessing(t *testing.T) {
	registry := testapp.Must[*bus.Registry](t)(bus.NewRegistry())
	session := func(role ops.Role, redact func(context.Context, ops.Content) ops.Content) *operator.Session {
		return operator.As(serviceOf(t, closed(t), registry, func(c *ops.Config) { c.Redact = redact }), someone(role))
	}
	hides := func(_ context.Context, c ops.Content) ops.Content {
		delete(c.Headers, "token")
		for i, text := range c.Errors {
			c.Errors[i] = strings.ReplaceAll(text, "secret", "***")
		}
		return c
	}
	search := func(s *operator.Session, text string) map[string]error {
		ctx, filter := t.Context(), poison.Filter{Error: text}
		return map[string]error{
			"find":    testapp.Third(s.Messages().Find(ctx, admin.Search{Header: "token", Value: text}, admin.Cursor{})),
			"list":    testapp.Third(s.Poisoned().List(ctx, filter, admin.Page{})),
			"count":   testapp.Second(s.Poisoned().Count(ctx, filter)),
			"preview": testapp.Second(s.Operations().Preview(ctx, ops.Requeue, ops.Target{Poisoned: &filter})),
			"plan":    testapp.Second(s.Operations().Plan(ctx, ops.Requeue, ops.Target{Poisoned: &filter})),
		}
	}
	for what, err := range search(session(ops.Viewer, ops.ShowAll), "secret") {
		if !errors.Is(err, ops.ErrForbidden) || errors.Is(err, ops.ErrRedacted) {
			t.Errorf("%s by a viewer: got error %v, want ErrForbidden", what, err)
		}
	}
	for name, s := range map[string]*operator.Session{"nothing is shown": session(ops.Operator, nil),
		"it is hidden": session(ops.Operator, hides)} {
		for what, err := range search(s, "a secret") {
			if !errors.Is(err, ops.ErrRedacted) {
				t.Errorf("%s where %s: got error %v, want ErrRedacted", what, name, err)
			}
		}
	}
	for what, err := range search(session(ops.Operator, hides), "harmless") {
		if errors.Is(err, ops.ErrForbidden) != (what == "find") { // whose header is hidden, whatever it is
			t.Errorf("%s of what is shown: got error %v", what, err)
		}
	}
	s := session(ops.Administrator, nil)
	if err := testapp.Second(s.Poisoned().Export(t.Context(), "why", poison.Filter{Error: "secret"}, nil)); !errors.Is(err, ops.ErrRedacted) {
		t.Errorf("export: got error %v, want ErrRedacted", err)
	}
}

// TestWhatOperationsTell: notes, which may quote an error, and texts that were looked for are for those who read contents.
func TestWhatOperationsTell(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a, _ := testapp.NewPoisoned(t, db, 3, testapp.Consumed("c"))
		a.Exec("UPDATE poisoned_messages SET reason = 'a secret'")
		d := serviceOf(t, db, a.Registry)
		o := planned(t, operator.As(d, someone(ops.Administrator)), ops.Requeue,
			ops.Target{Poisoned: &poison.Filter{Consumer: "c", Error: "secret"}})
		a.Exec("UPDATE message_operations SET state = 'paused', note = 'failed 10 times in a row; error: a secret'")
		hidden := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.Redact = nil })
		for name, of := range map[string]struct {
			session *operator.Session
			note    string
			text    string
		}{
			"an operator":          {operator.As(d, someone(ops.Operator)), "failed 10 times in a row; error: a secret", "secret"},
			"one who sees nothing": {operator.As(hidden, someone(ops.Operator)), "failed 10 times in a row", ""},
			"a viewer":             {operator.As(d, someone(ops.Viewer)), "", ""},
		} {
			one := operationOf(t, of.session, o.ID)
			list, _, err := of.session.Operations().List(t.Context(), admin.Page{})
			if err != nil || len(list) != 1 {
				t.Fatalf("%s: got %+v, error %v", name, list, err)
			}
			overview := testapp.Must[operator.Overview](t)(of.session.Overview(t.Context()))
			for _, got := range []ops.Operation{one, list[0], overview.Operations[0]} {
				if got.Note != of.note || got.Target.Poisoned.Error != of.text || got.Hidden != (of.text == "") || got.Target.Poisoned.Consumer != "c" {
					t.Errorf("%s sees note %q and text %q, hidden %t, want %q and %q", name, got.Note, got.Target.Poisoned.Error, got.Hidden,
						of.note, of.text)
				}
			}
		}
	})
}
