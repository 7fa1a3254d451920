package ops_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// closed is a database that answers nothing: what is refused must not come so far.
func closed(t *testing.T) *bun.DB {
	t.Helper()
	db := testdb.SQLite(t)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
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

// TestNobodyMayDoAnything: each method of a seat asks for the role, before anything else.
func TestNobodyMayDoAnything(t *testing.T) {
	d := deskOf(t, closed(t), testapp.Must[*bus.Registry](t)(bus.NewRegistry()))
	seats := map[string]*ops.Seat{
		"no role":      d.As(ops.Principal{Name: "ada"}),
		"no name":      d.As(ops.Principal{Role: ops.Administrator}),
		"unknown role": d.As(ops.Principal{Name: "ada", Role: 17}),
		"not allowed":  d.As(ops.Principal{Name: "ada", Role: ops.Administrator, Allow: func(ops.Action, string) bool { return false }}),
	}
	for name, seat := range seats {
		methods := reflect.ValueOf(seat)
		for i := range methods.NumMethod() {
			if err := call(methods.Method(i)); !errors.Is(err, ops.ErrForbidden) {
				t.Errorf("%s: %s: got error %v, want ErrForbidden", name, methods.Type().Method(i).Name, err)
			}
		}
	}
}

// TestRoles: what each role may do is what the documentation says.
func TestRoles(t *testing.T) {
	d := deskOf(t, closed(t), testapp.Must[*bus.Registry](t)(bus.NewRegistry()))
	least := map[string]ops.Role{
		"Pause": ops.Operator, "Resume": ops.Operator, "RunMessages": ops.Operator, "Reschedule": ops.Operator, "Requeue": ops.Operator,
		"ResumeProjection": ops.Operator, "RunSchedule": ops.Operator, "PauseSchedule": ops.Operator, "ResumeSchedule": ops.Operator,
		"Cancel": ops.Administrator, "Discard": ops.Administrator, "EditAndRequeue": ops.Administrator, "CheckEdit": ops.Administrator, "Export": ops.Administrator,
		"DeleteSchedule": ops.Administrator, "UpdateSchedule": ops.Administrator, "Plan": ops.Administrator, "Preview": ops.Administrator, // of no action
	}
	for _, role := range []ops.Role{ops.None, ops.Viewer, ops.Operator, ops.Administrator} {
		methods := reflect.ValueOf(d.As(someone(role)))
		for i := range methods.NumMethod() {
			name := methods.Type().Method(i).Name
			needs, ok := least[name]
			if !ok {
				needs = ops.Viewer
			}
			if forbidden := errors.Is(call(methods.Method(i)), ops.ErrForbidden); forbidden != (role < needs) {
				t.Errorf("%s as %s: forbidden is %t, want %t", name, role, forbidden, role < needs)
			}
		}
	}
}

// TestNoGuessing: who may not read contents may not look for what is in them.
func TestNoGuessing(t *testing.T) {
	s := deskOf(t, closed(t), testapp.Must[*bus.Registry](t)(bus.NewRegistry())).As(someone(ops.Viewer))
	ctx, text := t.Context(), poison.Filter{Error: "secret"}
	_, _, find := s.Find(ctx, outbox.Search{Header: "token", Value: "secret"}, outbox.FindPlace{})
	_, _, list := s.PoisonedMessages(ctx, text, outbox.Page{})
	_, count := s.CountPoisoned(ctx, text)
	for what, err := range map[string]error{"find": find, "list": list, "count": count} {
		if !errors.Is(err, ops.ErrForbidden) {
			t.Errorf("%s: got error %v, want ErrForbidden", what, err)
		}
	}
}
