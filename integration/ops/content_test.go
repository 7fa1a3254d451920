package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

const secret = "hunter2"

// everything is what a session shows of all there is, as JSON.
func everything(t *testing.T, s *operator.Session) string {
	t.Helper()
	ctx := t.Context()
	var shown strings.Builder
	add := func(value any, err error) {
		t.Helper()
		if err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, ops.ErrForbidden) {
			t.Fatal(err)
		}
		text := testapp.Must[[]byte](t)(json.Marshal(value))
		shown.Write(append(text, '\n'))
	}
	first := func(value any, _ any, err error) { t.Helper(); add(value, err) }
	pending, _, err := s.Messages().List(ctx, admin.Filter{}, admin.Page{})
	add(pending, err)
	for _, m := range pending {
		add(s.Messages().Get(ctx, m.ID))
		add(s.Messages().Explain(ctx, m.ID))
	}
	poisoned, _, err := s.Poisoned().List(ctx, poison.Filter{}, admin.Page{})
	add(poisoned, err)
	for _, m := range poisoned {
		add(s.Poisoned().Get(ctx, m.ID))
	}
	schedules, _, err := s.Schedules().List(ctx, schedule.Filter{}, admin.Page{})
	add(schedules, err)
	for _, m := range schedules {
		add(s.Schedules().Get(ctx, m.ID))
	}
	first(s.Poisoned().Groups(ctx, ""))
	add(s.Consumers().Failures(ctx, "", 100))
	add(s.Overview(ctx))
	add(s.Projections().List(ctx))
	first(s.Operations().List(ctx, admin.Page{}))
	var exported []operator.PoisonedMessage
	_, err = s.Poisoned().Export(ctx, "look", poison.Filter{}, func(m operator.PoisonedMessage) error {
		exported = append(exported, m)
		return nil
	})
	add(exported, err)
	return shown.String()
}

// gated is a payload whose consumer has a circuit.
type gated struct{}

func (gated) PayloadType() string { return "order.gated" }

// hiding is an application with a secret in all that has contents.
func hiding(t *testing.T, db *bun.DB) *testapp.App {
	t.Helper()
	circuit := new(outbox.Circuit)
	a := testapp.New(t, db, bus.Consume("gated", func(context.Context, gated) error { return nil }, outbox.WithCircuit(circuit)),
		bus.Consume("c", func(context.Context, order) error { return bus.Permanent(errors.New("wrong password " + secret)) }),
		bus.Consume("later", func(context.Context, testapp.Refund) error { return errors.New("refused " + secret) }, bus.AttemptDelay(time.Hour)))
	a.Produce(order{ID: secret}, outbox.Header("token", secret))
	a.Produce(testapp.Refund{ID: secret}, outbox.Header("token", secret))
	testapp.OK(t, testapp.Second(a.Scheduler().Upsert(t.Context(), db, order{ID: secret}, "0 0 3 * * *", "UTC", schedule.Name("s"))))
	a.Exec("UPDATE scheduled_messages SET last_error = ?", "cannot "+secret)
	_ = circuit.Trip(errors.New("tripped by " + secret)) // which its messages give back
	a.Produce(gated{})
	p := a.Start(testapp.Fast())
	testapp.Eventually(t, "one is poisoned, and one has failed", func() bool {
		return len(a.Poisoned()) == 1 && a.Count("SELECT count(*) FROM consumer_messages WHERE attempts = 1") == 1
	})
	p.MustStop()
	a.Exec("UPDATE poisoned_messages SET reason = ?", "no use, "+secret) // as a layer may say
	return a
}

// TestContents are shown to who may read them, as far as they are, and to nobody else.
func TestContents(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := hiding(t, db)
		cover := func(_ context.Context, c ops.Content) ops.Content {
			c.Payload = []byte(strings.ReplaceAll(string(c.Payload), secret, "***"))
			for i := range c.Errors {
				c.Errors[i] = strings.ReplaceAll(c.Errors[i], secret, "***")
			}
			for key := range c.Headers {
				c.Headers[key] = "***"
			}
			return c
		}
		all := serviceOf(t, db, a.Registry)
		covered := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.Redact = cover })
		none := serviceOf(t, db, a.Registry, func(c *ops.Config) { c.Redact = nil })
		for what, session := range map[string]*operator.Session{
			"a viewer":         operator.As(all, someone(ops.Viewer)),
			"covered":          operator.As(covered, someone(ops.Administrator)),
			"without a Redact": operator.As(none, someone(ops.Administrator)),
			"not allowed": operator.As(all, ops.Principal{Name: "ada", Role: ops.Administrator, Allow: func(a ops.Action, _ string) bool {
				return a != ops.Read
			}}),
		} {
			if shown := everything(t, session); strings.Contains(shown, secret) || !strings.Contains(shown, `"c"`) {
				t.Errorf("%s sees the secret, or nothing at all:\n%s", what, shown)
			}
		}
		shown := everything(t, operator.As(all, someone(ops.Administrator)))
		if got := strings.Count(shown, secret); got < 8 {
			t.Errorf("who may see all sees the secret %d times, want it everywhere:\n%s", got, shown)
		}
		if got := everything(t, operator.As(covered, someone(ops.Operator))); !strings.Contains(got, "wrong password ***") {
			t.Errorf("an operator does not see covered texts:\n%s", got)
		}
	})
}

// TestNoEditOfWhatIsHidden: who does not see all of a payload would lose what is hidden.
func TestNoEditOfWhatIsHidden(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := hiding(t, db)
		id, ctx := a.Poisoned()[0].ID, t.Context()
		covering := func(c *ops.Config) {
			c.Redact = func(_ context.Context, c ops.Content) ops.Content {
				c.Payload = []byte(`{}`)
				return c
			}
		}
		s := operator.As(serviceOf(t, db, a.Registry, covering), someone(ops.Administrator))
		for what, err := range map[string]error{
			"edit":  s.Poisoned().EditAndRequeue(ctx, "why", id, []byte(`{"id":"new"}`)),
			"check": testapp.Second(s.Poisoned().CheckEdit(ctx, id, []byte(`{"id":"new"}`))),
		} {
			if !errors.Is(err, ops.ErrRedacted) {
				t.Errorf("%s: got error %v, want ErrRedacted", what, err)
			}
		}
		s = operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		edit, err := s.Poisoned().CheckEdit(ctx, id, []byte(`{"idd":"new"}`))
		if err != nil || len(edit.Unknown) != 1 {
			t.Errorf("check: got %+v, error %v, want one unknown field", edit, err)
		}
		if err := s.Poisoned().EditAndRequeue(ctx, "typo", id, []byte(`{"id":"new"}`)); err != nil || len(a.Poisoned()) != 0 {
			t.Errorf("edit: got error %v and %d poisoned, want it requeued", err, len(a.Poisoned()))
		}
	})
}
