package console_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// incident is a shop in which a consumer fails, with the console, a runner and a browser.
type incident struct {
	*site
	*tab
	app   *testapp.App
	fails *atomic.Bool
}

const failed = 60 // messages, by the time that somebody looks

func newIncident(t *testing.T, db *bun.DB) incident {
	t.Helper()
	var fails atomic.Bool
	fails.Store(true)
	app := testapp.New(t, db, bus.Consume("charge-card", func(context.Context, testapp.Order) error {
		if fails.Load() {
			return errors.New("the provider does not know amount 12")
		}
		return nil
	}, bus.MaxAttempts(1)))
	app.Start(testapp.Fast())
	app.ProduceMany(failed)
	testapp.Eventually(t, "all have failed", func() bool { return len(app.Poisoned()) == failed })
	s := newSite(t, db, ops.Operator, named("ada"))
	runner := testapp.Must[*ops.Runner](t)(ops.NewRunner(s.service, nil))
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- runner.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("runner: %v", err)
		}
	})
	return incident{s, newTab(t), app, &fails}
}

// requeueAll goes from the link that an alert has to an operation under way, in three clicks.
func (i incident) requeueAll(t *testing.T) {
	t.Helper()
	i.mustVisit(i.serve() + "poisoned?consumer=charge-card")
	i.click(`main a[href^="group?"]`)                      // 1: what has failed
	i.click(`form[action="plan"] button[value="requeue"]`) // 2: what it would change
	if text := i.text(); !strings.Contains(text, "60 messages") {
		t.Errorf("preview: got %.600q, want 60 messages", text)
	}
	i.do(chromedp.SetValue(chromedp.CSS(`form[action="start"] input[name="rate"]`), "1000"),
		chromedp.SendKeys(chromedp.CSS(`form[action="start"] input[name="reason"]`), "the provider is mended"))
	i.click(`form[action="start"] button`) // 3: start
	i.at("operation")
}

// shows waits until the operation's page says so by itself.
func (i incident) shows(t *testing.T, state string) {
	t.Helper()
	testapp.Poll(t, "the page shows that the operation is "+state, 2*time.Minute, 100*time.Millisecond, func() bool {
		return eval[string](i.tab, `document.querySelector("main .pill")?.innerText.toLowerCase() || ""`) == state
	})
}

// TestAnIncident: from an alert's link to the messages done, in three clicks.
func TestAnIncident(t *testing.T) {
	t.Parallel()
	each := func(t *testing.T, run func(t *testing.T, db *bun.DB)) {
		t.Run("sqlite", func(t *testing.T) { t.Parallel(); run(t, testdb.SQLite(t)) })
		if *all {
			t.Run("postgres", func(t *testing.T) { t.Parallel(); run(t, testdb.Postgres(t)) })
			t.Run("mariadb", func(t *testing.T) { t.Parallel(); run(t, testdb.MariaDB(t)) })
		}
	}
	t.Run("mended", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, db *bun.DB) {
			i := newIncident(t, db)
			i.fails.Store(false)
			i.requeueAll(t)
			i.shows(t, "done")
			testapp.Eventually(t, "all are consumed", i.app.Empty)
			if n := len(i.app.Poisoned()); n > 0 {
				t.Errorf("%d messages are still poisoned", n)
			}
			i.accessible("the operation that is done")
		})
	})
	t.Run("not mended", func(t *testing.T) {
		t.Parallel()
		each(t, func(t *testing.T, db *bun.DB) {
			i := newIncident(t, db)
			i.requeueAll(t)
			i.shows(t, "paused") // by itself
			testapp.Eventually(t, "the canaries have failed again", i.app.Empty)
			// Its ten canaries are poisoned anew, and the others were not touched.
			if n := count(t, db, "SELECT count(*) FROM poisoned_messages WHERE id <= (SELECT max(up_to_id) FROM message_operations)"); n != failed-10 {
				t.Errorf("%d messages are as they were, want %d", n, failed-10)
			}
			i.accessible("the operation that has paused itself")
		})
	})
}
