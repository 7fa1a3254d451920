package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// click clicks on something that leads to another page, and waits for that.
func (b *tab) click(selector chromedp.CSS) {
	b.Helper()
	b.call(func(ctx context.Context) error {
		_, err := chromedp.RunResponse(ctx, chromedp.Click(selector))
		if err != nil {
			err = fmt.Errorf("click on %s: %w", selector, err)
		}
		return err
	})
}

// at waits until the tab is at a page, and the page is ready.
func (b *tab) at(kind string) {
	b.Helper()
	testapp.Eventually(b.T, "the browser is at "+kind, func() bool {
		return strings.HasSuffix(route(b.path()), "/"+kind) && eval[string](b, "document.readyState") == "complete"
	})
}

// keys presses keys, one after the other.
func (b *tab) keys(keys ...string) {
	b.Helper()
	for _, key := range keys {
		b.do(chromedp.KeyEvent(key))
	}
}

// goTo presses g and a letter, which must come soon after it: again, where the machine was too busy for that.
func (b *tab) goTo(key, tab string) {
	b.Helper()
	testapp.Poll(b.T, "the keys g "+key+" lead to "+tab, 2*time.Minute, 2*time.Second, func() bool {
		b.keys("g", key)
		here := b.path()
		return strings.HasSuffix(route(here), "/"+tab)
	})
	b.at(tab)
}

// onEach runs a test on SQLite, and where all is looked at on the other databases, too.
func onEach(t *testing.T, run func(t *testing.T, db *bun.DB)) {
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); run(t, inWorld(t, "normal")) })
	if *all {
		t.Run("postgres", func(t *testing.T) { t.Parallel(); run(t, seeded(t, testdb.Postgres(t))) })
		t.Run("mariadb", func(t *testing.T) { t.Parallel(); run(t, seeded(t, testdb.MariaDB(t))) })
	}
}

// lookAround is what somebody reads: from the overview down to a message, and the lists.
func lookAround(b *tab, address string) {
	b.Helper()
	b.mustVisit(address)
	for _, tab := range []string{"messages", "poisoned", "schedules", "processes", "projections", "operations", "doctor"} {
		b.click(chromedp.CSS(fmt.Sprintf(`nav a[href="%s"]`, tab)))
		b.at(tab)
	}
	b.click(`nav a[href="poisoned"]`)
	b.click(`main a[href^="group?"]`)
	b.at("group")
	group := eval[string](b, "location.href")
	b.click(`main a[href^="message?"]`)
	b.at("message")
	if text := b.text(); !strings.Contains(text, secret) {
		b.Errorf("a message: got %.300q, want its content", text)
	}
	b.mustVisit(group)
}

func TestReadingWithScripts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *bun.DB) {
		lookAround(newTab(t), newSite(t, db, ops.Operator).serve())
	})
}

func TestReadingWithoutScripts(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *bun.DB) {
		b := newTab(t)
		b.scripts(false)
		lookAround(b, newSite(t, db, ops.Operator).serve())
	})
}

// TestReadingByKeyboard: every page can be reached without a mouse, by keys of its own and by those that all pages have.
func TestReadingByKeyboard(t *testing.T) {
	t.Parallel()
	b := newTab(t)
	b.mustVisit(newSite(t, inWorld(t, "normal"), ops.Operator).serve())
	for key, tab := range map[string]string{"m": "messages", "s": "schedules"} {
		b.goTo(key, tab)
	}
	b.goTo("p", "poisoned")
	b.keys("j", kb.Enter)
	b.at("group")
	b.keys("j", "x")
	if n := eval[int](b, `document.querySelectorAll("input[name=id]:checked").length`); n != 1 {
		t.Errorf("j and x: got %d messages chosen, want 1", n)
	}
	b.keys("j", "k", kb.Enter)
	b.at("message")
	b.goTo("o", "")
	b.keys("?")
	if !eval[bool](b, `document.querySelector("dialog#help").open`) {
		t.Error("?: the help is not open")
	}
	b.keys(kb.Escape)
	// With the keys of all pages: the first one that Tab comes to skips what all pages have.
	b.keys(kb.Tab)
	if got := eval[string](b, `document.activeElement.getAttribute("href") || ""`); got != "#main" {
		t.Errorf("Tab: got %q, want the link that leads to the content", got)
	}
	reached := false
	for range 40 {
		b.keys(kb.Tab)
		if strings.HasSuffix(eval[string](b, `document.activeElement.getAttribute("href") || ""`), "messages") {
			reached = true
			break
		}
	}
	if !reached {
		t.Fatal("Tab does not come to the messages")
	}
	b.keys(kb.Enter)
	b.at("messages")
}

// TestKeysCanBeSwitchedOff: they can, since single keys are in the way of who speaks to the machine.
func TestKeysCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	if a := s.post("settings", url.Values{"theme": {"dark"}, "every": {"0"}, "keys": {"false"}}); a.status != http.StatusSeeOther ||
		!strings.Contains(a.header.Get("Set-Cookie"), "HttpOnly") {
		t.Fatalf("settings: got %s", a)
	}
	cookie := s.post("settings", url.Values{"theme": {"dark"}, "every": {"0"}, "keys": {"false"}}).header.Get("Set-Cookie")
	a := s.get("", header("Cookie", strings.Split(cookie, ";")[0]))
	for _, want := range []string{`data-theme="dark"`, `data-every="0"`, `data-keys="false"`} {
		if !strings.Contains(a.body, want) {
			t.Errorf("got %.200s, want %s", a.body, want)
		}
	}
	b, address := newTab(t), s.serve()
	b.mustVisit(address)
	if status := eval[int](b, `fetch("settings", {method: "POST", body: new URLSearchParams({theme: "auto", every: "0", keys: "false"})}).then(a => a.status)`); status != http.StatusOK {
		t.Fatalf("settings: got status %d", status)
	}
	b.mustVisit(address)
	b.keys("?")
	if eval[bool](b, `document.querySelector("dialog#help").open`) {
		t.Error("the help is open for who has switched keys off")
	}
}

// TestBehindAProxy: a proxy has moved the console to another path, under another name, and it does not know.
func TestBehindAProxy(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, db *bun.DB) {
		var proxied *httptest.Server
		s := newSite(t, db, ops.Operator, named("ada"), patient)
		to := testapp.Must[*url.URL](t)(url.Parse(s.serve()))
		proxied = httptest.NewServer(http.StripPrefix("/a/b", &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to) // and so Host is that of the console
			r.SetXForwarded()
		}}))
		t.Cleanup(proxied.Close)
		b := newTab(t)
		lookAround(b, proxied.URL+"/a/b/")
		if !strings.HasPrefix(b.path(), "/a/b/group?") {
			t.Errorf("got %s, want that it is below /a/b/", b.path())
		}
		b.click(`form[action="plan"] button[value="requeue"]`) // a change goes through, too, and comes back below /a/b/
		b.at("operation")
		if !strings.HasPrefix(b.path(), "/a/b/operation?") {
			t.Errorf("got %s, want that it is below /a/b/", b.path())
		}
		b.click(`nav a[data-key="o"]`) // whose path is the prefix itself
		if b.path() != "/a/b/" {
			t.Errorf("got %s, want that it is below /a/b/, the first page", b.path())
		}
	})
}

// TestConfirmingMany: what is chosen is looked at together, however many messages these are, and what is gone is left out.
func TestConfirmingMany(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.ProduceMany(99)
		var statements atomic.Int64
		hooked := db.WithQueryHook(testapp.QueryHook(func(context.Context, string) { statements.Add(1) }))
		s := newSite(t, hooked, ops.Administrator)
		var ids strings.Builder
		for _, m := range a.Pending() {
			fmt.Fprintf(&ids, "&id=%d", m.ID)
		}
		page := s.must("confirm?do=cancel" + ids.String() + "&id=4711")
		if n := statements.Load(); n > 10 {
			t.Errorf("got %d statements, want 10 at most", n)
		}
		if n := strings.Count(page.body, `<input type="hidden" name="id"`); n != 99 ||
			!strings.Contains(page.body, "Cancel 99 messages?") ||
			!strings.Contains(page.body, "1 message no longer exists and is left out: 4711.") {
			t.Errorf("got %d messages to confirm in %s, want 99, and that one is gone", n, page)
		}
	})
}

// TestLongExports: an export may take longer than the server's time for an answer.
func TestLongExports(t *testing.T) {
	t.Parallel()
	const enough = 300 * time.Millisecond
	slow := func(_ *site, c *ops.Config, _ *consoleConfig) {
		c.Redact = func(_ context.Context, content ops.Content) ops.Content {
			<-time.After(enough / 10) // of 48 messages
			return content
		}
	}
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, slow)
	server := httptest.NewUnstartedServer(s.console)
	server.Config.WriteTimeout = enough
	server.Start()
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+prefix+"export",
		strings.NewReader(url.Values{"reason": {"to look at"}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines, err := io.ReadAll(answer.Body)
	if want := count(t, s.db, "SELECT count(*) FROM poisoned_messages"); err != nil || strings.Count(string(lines), "\n") != want ||
		strings.Contains(string(lines), "is incomplete") {
		t.Errorf("got %d lines, %v, want %d", strings.Count(string(lines), "\n"), err, want)
	}
}

// TestABegunChangeIsClosed: a change that stays started can be ended.
func TestABegunChangeIsClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t, migrated(t, inWorld(t, "empty")), ops.Administrator)
	s.exec("INSERT INTO message_operations (kind, actor, reason, target, preview, state, rate, canary, canaries, after_id, up_to_id, changed, left_alone, note, created_at)"+
		" VALUES ('export', 'ada', 'why', '{}', '', 'started', 0, 0, '', 0, 0, 0, 0, '', ?)", s.ago(time.Hour))
	id := strconv.Itoa(count(t, s.db, "SELECT MAX(id) FROM message_operations"))
	if page := s.must("operation?id=" + id).body; !strings.Contains(page, "The outcome is unknown") || !strings.Contains(page, "Stop…") {
		t.Errorf("got %s, want it to be closed from there", page)
	}
	s.post("do", url.Values{"do": {"stop"}, "operation": {id}, "reason": {"looked"}})
	if n := count(t, s.db, "SELECT count(*) FROM message_operations WHERE state = 'stopped' AND id = "+id); n != 1 {
		t.Error("want it closed")
	}
}

// TestTryingOneMessage of a consumer whose circuit breaker is open: the button stores the request, for the processors to see.
func TestTryingOneMessage(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator, named("ada"))
	const question, button = "confirm?consumer=consumer-02&do=probe", `href="confirm?consumer=consumer-02&amp;do=probe">Try one now`
	form := url.Values{"do": {"probe"}, "consumer": {"consumer-02"}, "reason": {"the mail server is back"}}
	due := func() int {
		return count(t, s.db, "SELECT count(*) FROM message_breakers WHERE name = 'consumer-02' AND open_until <= ?", s.ago(0))
	}
	refused := func(who string) {
		t.Helper()
		if a := s.post("do", form); a.status != http.StatusForbidden || due() != 0 {
			t.Errorf("%s: got %s, want status 403 and no request", who, a)
		}
	}
	s.as(ops.Viewer)
	if strings.Contains(s.must("consumer?name=consumer-02").body, button) {
		t.Error("a viewer has the button")
	}
	refused("a viewer")
	s.as(ops.Operator)
	s.allow = func(a ops.Action, consumer string) bool { return a != ops.Probe || consumer != "consumer-02" }
	refused("who may not do it to this consumer")
	s.allow = nil
	for _, path := range []string{"consumer?name=consumer-02", "doctor"} {
		if page := s.must(path).body; !strings.Contains(page, button) {
			t.Errorf("%s: want the button in %s", path, page)
		}
	}
	s.reads("the question", question, texts{[]string{"Probe consumer-02?", "One message runs now"}, nil})
	if a := s.post("do", form); a.status != http.StatusSeeOther || a.header.Get("Location") != "consumer?name=consumer-02" || due() != 1 {
		t.Errorf("got %s and %d requests, want one, and the page of the consumer", a, due())
	}
	s.reads("the audit", "operations", texts{[]string{"probe", "the mail server is back", "ada"}, nil})
	form.Set("consumer", "consumer-03")
	if a := s.post("do", form); a.status != http.StatusConflict || !strings.Contains(a.body, "is not open") {
		t.Errorf("one that is closed: got %s, want status 409", a)
	}
}
