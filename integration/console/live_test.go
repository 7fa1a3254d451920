package console_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// Pages look again by themselves. Most of these tests count the looks that arrive, and have the page's clock go faster,
// stand still or jump, so that none of them waits for what it can have at once.

const fragmentHeader = "X-Asyncmonolith-Fragment"

// inGroup is a page with several sections that are live: two change with each change of [visitor.change].
var inGroup = "group?" + url.Values{"consumer": {"consumer-03"}, "fingerprint": {fingerprint(3)}}.Encode() // immutable

// paced lets tests decide how long the page waits between looks (pace, in ms; 0: forever), how long it waits for an
// answer (hang), and how late it is (ahead, in ms).
const paced = `(() => {
	const later = setTimeout.bind(window), now = Date.now;
	window.pace = 100; window.hang = 10_000; window.ahead = 0; window.waits = [];
	Date.now = () => now() + ahead;
	window.setTimeout = (run, ms, ...rest) => {
		if (ms === 10_000) return later(run, hang, ...rest);
		if (ms < 2000) return later(run, ms, ...rest);
		waits.push(ms);
		return later(run, pace || 1e9, ...rest);
	};
})()`

// door is what stands before a console, and counts who comes.
type door struct {
	*site
	pages, looks, posts atomic.Int64
	instead             atomic.Pointer[func(http.ResponseWriter, *http.Request) bool] // answers in place of the console, if it returns true
}

func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get(fragmentHeader) != "":
		d.looks.Add(1)
	case r.Method == http.MethodPost:
		d.posts.Add(1)
	case r.Header.Get("Sec-Fetch-Dest") == "document":
		d.pages.Add(1)
	}
	if instead := d.instead.Load(); instead == nil || !(*instead)(w, r) {
		d.console.ServeHTTP(w, r)
	}
}

// answer has something else than the console answer requests, or looks only.
func (d *door) answer(instead func(http.ResponseWriter, *http.Request) bool) {
	d.instead.Store(&instead)
}

func (d *door) answerLooks(instead http.HandlerFunc) {
	d.answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get(fragmentHeader) == "" {
			return false
		}
		instead(w, r)
		return true
	})
}

func (d *door) normal() { d.instead.Store(nil) }

// visitor is somebody who looks at a page of a console.
type visitor struct {
	*door
	*tab
	*testing.T
	address string
	n       int // changes
}

// visits has somebody look at a page.
func (s *site) visits(t *testing.T, path string) *visitor {
	t.Helper()
	d := &door{site: s}
	server := httptest.NewServer(d)
	t.Cleanup(server.Close)
	v := &visitor{d, newTab(t), t, server.URL + prefix, 0}
	v.beforeLoad(paced)
	v.mustVisit(v.address + path)
	return v
}

// visits has somebody look at a page of the normal world.
func visits(t *testing.T, path string, options ...option) *visitor {
	t.Helper()
	return newSite(t, inWorld(t, "normal"), ops.Administrator, options...).visits(t, path)
}

// beforeLoad has each page run a script before its own.
func (b *tab) beforeLoad(script string) {
	b.Helper()
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}

// run runs a script in the page.
func (b *tab) run(script string) {
	b.Helper()
	eval[bool](b, "(() => {"+script+"})(), true")
}

// mouse moves or presses the mouse at the middle of an element.
func (b *tab) mouse(kind input.DispatchMouseEventType, selector string) {
	b.Helper()
	at := eval[[]float64](b, fmt.Sprintf(`(({x, y, width, height}) => [x + width / 2, y + height / 2])(document.querySelector(%q).getBoundingClientRect())`, selector))
	b.do(chromedp.MouseEvent(kind, at[0], at[1], chromedp.Button("left")))
}

// hide hides the tab, and returns what shows it again. Another tab in the same window does it: Chromium tells the page
// that it is hidden as it tells any, in headless mode, too. An emulated state would not: frozen pages run nothing at all.
func (b *tab) hide() (show func()) {
	b.Helper()
	here := chromedp.FromContext(b.ctx)
	var other target.ID
	b.call(func(ctx context.Context) error {
		made, err := chromedp.CallBrowser(ctx, target.CreateTarget,
			target.CreateTargetParams{URL: "about:blank", BrowserContextID: here.BrowserContextID})
		other = made.TargetID
		return err
	})
	b.seen(false)
	return func() {
		b.Helper()
		b.call(func(ctx context.Context) error {
			_, err := chromedp.CallBrowser(ctx, target.CloseTarget, target.CloseTargetParams{TargetID: other})
			return errors.Join(err, testapp.Second(chromedp.CallBrowser(ctx, target.ActivateTarget,
				target.ActivateTargetParams{TargetID: here.Target.TargetID})))
		})
		b.seen(true)
	}
}

// seen waits until the page knows whether it can be seen.
func (b *tab) seen(want bool) {
	b.Helper()
	testapp.Eventually(b.T, fmt.Sprintf("the page knows that it is seen: %t", want),
		func() bool { return eval[bool](b, "document.hidden") != want })
}

// every chooses how often the tab's pages look again.
func (b *tab) every(seconds string) {
	b.Helper()
	b.run(`document.querySelector("details.me").open = true`)
	b.do(chromedp.SetValue(chromedp.CSS(`.me select[name="every"]`), seconds))
	b.click(`.me button`)
	testapp.Eventually(b.T, "the page is ready", func() bool { return eval[string](b, "document.readyState") == "complete" })
	if got := eval[string](b, "document.documentElement.dataset.every"); got != seconds {
		b.Fatalf("the page looks again every %s s, want %s", got, seconds)
	}
}

// leave closes the tab.
func (b *tab) leave() {
	b.Helper()
	id := chromedp.FromContext(b.ctx).Target.TargetID
	b.call(func(ctx context.Context) error {
		return testapp.Second(chromedp.CallBrowser(ctx, target.CloseTarget, target.CloseTargetParams{TargetID: id}))
	})
}

// exec changes the database behind the page's back.
func (v *visitor) exec(statement string, args ...any) {
	v.T.Helper()
	if _, err := v.db.NewRaw(statement, args...).Exec(v.T.Context()); err != nil {
		v.T.Fatalf("%s: %v", statement, err)
	}
}

// change changes what two sections of the group's page say, and returns the text of one.
func (v *visitor) change() string {
	v.T.Helper()
	v.n++
	text := fmt.Sprintf("changed-%d", v.n)
	v.exec("UPDATE poisoned_messages SET reason = ?", text)
	v.changeTally()
	return text
}

func (v *visitor) changeTally() {
	v.T.Helper()
	v.exec("UPDATE message_failures SET runs = runs + 1")
}

// goesOn waits until the page has looked again, some times: what came before the last of these is on the page by then.
func (v *visitor) goesOn() {
	v.T.Helper()
	n := v.looks.Load() + 3
	testapp.Poll(v.T, "the page looks again", 20*time.Second, 5*time.Millisecond, func() bool { return v.looks.Load() >= n })
}

// shows waits until a section has a text.
func (v *visitor) shows(selector, text string) {
	v.T.Helper()
	testapp.Poll(v.T, fmt.Sprintf("%s shows %q", selector, text), 20*time.Second, 20*time.Millisecond, func() bool {
		return eval[bool](v.tab, fmt.Sprintf(`document.querySelector(%q)?.textContent.includes(%q) ?? false`, selector, text))
	})
}

// mark marks an element: what takes its place has no mark.
func (v *visitor) mark(selectors ...string) {
	v.T.Helper()
	for _, selector := range selectors {
		v.run(fmt.Sprintf(`document.querySelector(%q).marked = true`, selector))
	}
}

// stays tells whether an element is there that was marked.
func (v *visitor) stays(selector string) bool {
	v.T.Helper()
	return eval[bool](v.tab, fmt.Sprintf(`document.querySelector(%q)?.marked === true`, selector))
}

// quiet is longer than any page waits between looks in these tests.
const quiet = 600 * time.Millisecond

// settles waits until a number stays as it is.
func settles(t *testing.T, what string, count func() int64) {
	t.Helper()
	last, since := count(), time.Now()
	testapp.Poll(t, what, 10*quiet, 10*time.Millisecond, func() bool {
		if n := count(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > quiet
	})
}

// TestFragments: asked again with its tag, a page's middle is sent only if it is another.
func TestFragments(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	asFragment, ids := header(fragmentHeader, "main"), regexp.MustCompile(`id="([^"]*)" data-live`)
	for _, path := range []string{"", "consumer?name=consumer-03", "messages", "message?id=3", "poisoned", inGroup, "suspects",
		"schedules", "schedule?id=1", "processes", "projections", "operations", "operation?id=2"} {
		whole := s.must(path)
		if whole.header.Get("ETag") != "" || whole.header.Get(fragmentHeader) != "" {
			t.Errorf("%q: got headers %v, want those of a whole page", path, whole.header)
		}
		var tag string
		// Ages are in seconds: then it is another one, and is asked again.
		testapp.Poll(t, fmt.Sprintf("%q: the same is not sent again", path), 10*time.Second, time.Millisecond, func() bool {
			part := s.get(path, asFragment)
			tag = part.header.Get("ETag")
			if part.status != http.StatusOK || tag == "" || part.header.Get(fragmentHeader) != "main" || strings.Contains(part.body, "<html") {
				t.Fatalf("%q: got %s with headers %v, want the middle of a page, with a tag", path, part, part.header)
			}
			if live := ids.FindAllString(part.body, -1); len(live) != strings.Count(part.body, "data-live") || unique(live) != len(live) {
				t.Errorf("%q: got sections %q, want that each has an id of its own", path, live)
			}
			same := s.get(path, asFragment, header("If-None-Match", tag))
			if same.status != http.StatusNotModified {
				return false
			}
			if same.body != "" || same.header.Get("ETag") != tag || same.header.Get(fragmentHeader) == "" {
				t.Errorf("%q: got %s with headers %v, want nothing but the same tag", path, same, same.header)
			}
			for _, a := range []answer{whole, part, same} {
				if got := a.header.Get("Vary"); got != "Cookie, "+fragmentHeader {
					t.Errorf("%q: got Vary %q", path, got)
				}
				if got := a.header.Get("Cache-Control"); got != "no-store" {
					t.Errorf("%q: got Cache-Control %q", path, got)
				}
			}
			return true
		})
	}
	tagOf := func() string { return s.get(inGroup, asFragment).header.Get("ETag") }
	tag := tagOf()
	if a := s.get(inGroup, asFragment, header("If-None-Match", "W/"+tag)); a.status != http.StatusNotModified {
		t.Errorf("a tag that a proxy has weakened: got %s, want status 304", a)
	}
	if _, err := s.db.NewRaw("UPDATE poisoned_messages SET reason = 'changed'").Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := s.get(inGroup, asFragment, header("If-None-Match", tag)); a.status != http.StatusOK || a.header.Get("ETag") == tag ||
		!strings.Contains(a.body, "changed") {
		t.Errorf("after a change: got %s with tag %s, want what has changed", a, a.header.Get("ETag"))
	}
}

func unique(texts []string) int {
	all := make(map[string]bool)
	for _, text := range texts {
		all[text] = true
	}
	return len(all)
}

// TestPagesAreLive at the interval that somebody has chosen, and not if that is never.
func TestPagesAreLive(t *testing.T) {
	t.Parallel()
	v := visits(t, inGroup)
	v.beforeLoad("pace = 2000") // as it is
	var mu sync.Mutex
	var came []time.Time
	v.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if mu.Lock(); r.Header.Get(fragmentHeader) != "" {
			came = append(came, time.Now())
		}
		mu.Unlock()
		return false
	})
	v.every("2")
	mu.Lock()
	came = nil
	mu.Unlock()
	v.shows("#list", v.change()) // by itself
	testapp.Eventually(t, "it looks again", func() bool { mu.Lock(); defer mu.Unlock(); return len(came) > 1 })
	mu.Lock()
	if wait := came[1].Sub(came[0]); wait < 1900*time.Millisecond {
		t.Errorf("got %s between looks, want 2s", wait)
	}
	mu.Unlock()
	if waits := eval[[]int](v.tab, "waits"); len(waits) == 0 || waits[0] != 2000 {
		t.Errorf("got waits %v, want 2000 ms each", waits)
	}
	if pages := v.pages.Load(); pages != 2 {
		t.Errorf("got %d pages loaded, want 2: it shows changes without", pages)
	}
	v.every("15")
	if waits := eval[[]int](v.tab, "waits"); len(waits) != 1 || waits[0] != 15_000 {
		t.Errorf("got waits %v, want one of 15000 ms", waits)
	}
	v.every("0")
	v.looks.Store(0)
	show := v.hide()
	show() // this is no reason either
	v.mouse(input.DispatchMouseEventTypeMouseMoved, "h1")
	settles(t, "it is quiet", v.looks.Load)
	if n, waits := v.looks.Load(), eval[[]int](v.tab, "waits"); n != 0 || len(waits) > 0 {
		t.Errorf("never: got %d looks and waits %v, want none", n, waits)
	}
}

// TestHiddenTabs do not look, and look at once when they are seen again.
func TestHiddenTabs(t *testing.T) {
	t.Parallel()
	v := visits(t, inGroup)
	v.goesOn()
	show := v.hide()
	settles(t, "a hidden tab does not look", v.looks.Load)
	v.run("pace = 0") // and now it does not look because it has waited
	n, text := v.looks.Load(), v.change()
	show()
	v.shows("#list", text)
	if got := v.looks.Load() - n; got != 1 {
		t.Errorf("seen again: got %d looks, want one at once", got)
	}
}

// TestIdlePages stop when nobody has been there for half an hour.
func TestIdlePages(t *testing.T) {
	t.Parallel()
	v := visits(t, inGroup)
	v.run("ahead = 29 * 60_000")
	v.goesOn()
	idle := func() {
		t.Helper()
		v.run("ahead += 31 * 60_000")
		v.shows("#live", "Paused")
		settles(t, "an idle page does not look", v.looks.Load)
	}
	for name, back := range map[string]func(){
		"a pointer moves":      func() { v.mouse(input.DispatchMouseEventTypeMouseMoved, "h1") },
		"a key is pressed":     func() { v.keys(kb.Shift) },
		"the tab is looked at": func() { v.hide()() },
	} {
		idle()
		t.Log("back: " + name) // what the next line is about, if it fails
		text := v.change()
		back()
		v.shows("#list", text)
		v.goesOn()
	}
}

// TestLoggedOut: a page of which the next look is refused says so, and stops.
func TestLoggedOut(t *testing.T) {
	t.Parallel()
	var out atomic.Bool
	login := func(c *consoleConfig) {
		known := c.Authorize
		c.LoginURL = "/login"
		c.Authorize = func(r *http.Request) (ops.Principal, error) {
			if out.Load() {
				return ops.Principal{}, errors.New("logged out")
			}
			return known(r)
		}
	}
	v := visits(t, inGroup, configured(login))
	// What a login in front of the console does: it sends the page on, or answers in its place.
	elsewhere := func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusSeeOther) }
	var given atomic.Bool
	inPlace := func(w http.ResponseWriter, r *http.Request) { // and has no end
		for r.Context().Err() == nil {
			fmt.Fprint(w, "<main><section id=list data-live>Log in</section></main>")
			_ = http.NewResponseController(w).Flush()
		}
		given.Store(true)
	}
	for _, c := range []struct {
		name, says string
		begin      func()
		end        func() bool
	}{
		{"the console refuses", "not logged in", func() { out.Store(true) }, nil},
		{"a proxy redirects", "not logged in", func() { v.answerLooks(elsewhere) }, nil},
		{"a proxy answers", "not logged in", func() { v.answerLooks(inPlace) }, given.Load},
		{"the role is gone", "no longer available", func() { v.as(ops.None) }, nil},
		{"what the page is about is gone", "no longer available", func() { v.answerLooks(http.NotFound) }, nil},
	} {
		out.Store(false)
		v.normal()
		v.as(ops.Administrator)
		v.mustVisit(v.address + inGroup)
		v.goesOn()
		c.begin()
		v.shows("#away", c.says)
		n := v.looks.Load()
		v.hide()() // this does not make it go on, nor that somebody is there after a while
		v.run("ahead += 31 * 60_000")
		v.mouse(input.DispatchMouseEventTypeMouseMoved, "h1")
		settles(t, c.name+": the page has stopped", v.looks.Load)
		if got := v.looks.Load(); got != n || !eval[bool](v.tab,
			`document.querySelector("#away").role === "status" && document.querySelector("#list").innerText.includes("Messages")`) {
			t.Errorf("%s: got %d more looks, want that it keeps what it has, and reads out why", c.name, got-n)
		}
		if c.end != nil {
			testapp.Poll(t, c.name+": the page does not read what has no end", 10*time.Second, 5*time.Millisecond, c.end)
		}
		v.complaints() // of the answers' statuses
	}
}

// TestLooksThatFail are told once, one is made at a time, and what hangs is given up.
func TestLooksThatFail(t *testing.T) {
	t.Parallel()
	v := visits(t, inGroup)
	v.run(`hang = 1500; window.said = 0; new MutationObserver(() => said++).observe(document.querySelector("#away"), {childList: true})`)
	// In the browser: the server hears late that a look was given up.
	v.run(`window.now = window.most = 0; window.asks = window.fetch
		window.fetch = (...of) => { most = Math.max(most, ++now); return asks(...of).finally(() => now--) }`)
	never := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	v.answerLooks(never)
	testapp.Eventually(t, "a look hangs", func() bool { return eval[int](v.tab, "now") > 0 })
	v.hide()() // it would look at once now
	for name, bad := range map[string]http.HandlerFunc{
		"The server does not answer": never,
		"Refresh failed":             func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) },
	} {
		v.run("hang = 300")
		v.answerLooks(bad)
		v.shows("#away", name)
		if name == "Refresh failed" { // a busy machine may take longer than that for an answer
			v.run("hang = 20_000")
			v.goesOn()
			v.shows("#away", name)
		}
		v.run("said = 0")
		v.goesOn()
		if n := eval[int](v.tab, "said"); n > 0 {
			t.Errorf("%s: it was said %d times more", name, n)
		}
		v.run("hang = 20_000") // so may an answer that comes
		v.normal()
		v.shows("#list", v.change())
		v.shows("#live", "Refreshed")
		if !eval[bool](v.tab, `document.querySelector("#away").hidden`) {
			t.Errorf("%s: the bar is there after a look that went well", name)
		}
	}
	if n := eval[int](v.tab, "most"); n != 1 {
		t.Errorf("got %d looks at a time, want 1", n)
	}
	v.complaints() // of the answers' statuses
}

// TestAFormInUseIsNotReplaced stays as it is, while what is beside it is new; and is new once they let it go.
func TestAFormInUseIsNotReplaced(t *testing.T) {
	t.Parallel()
	charts := "consumer?name=consumer-03"
	for _, c := range []struct {
		name              string
		hold, letGo       func(*visitor)
		path, busy, other string // the group's page, its list and its numbers, if they are empty
	}{
		{name: "focus", hold: script(`document.querySelector("#list a[data-open]").focus()`), letGo: script(`document.activeElement.blur()`)},
		{name: "a checked box", hold: script(`document.querySelector("#list input[name=id]").click()`),
			letGo: script(`document.querySelector("#list input:checked").click()`)},
		{name: "a selection", hold: script(`getSelection().selectAllChildren(document.querySelector("#list h2"))`),
			letGo: script(`getSelection().removeAllRanges()`)},
		{name: "a selection that ends there", hold: script(`getSelection().setBaseAndExtent(document.querySelector("form.all b").firstChild, 0, document.querySelector("#list h2").firstChild, 3)`), letGo: script(`getSelection().collapseToStart()`)},
		{name: "the row that the keys are at", hold: func(v *visitor) { v.keys("j"); v.run(`document.activeElement.blur()`) },
			letGo: func(v *visitor) { v.keys(kb.Escape) }},
		{name: "what the pointer holds", busy: "#tally", other: "#list",
			hold:  func(v *visitor) { v.mouse(input.DispatchMouseEventTypeMousePressed, "#tally dd") },
			letGo: func(v *visitor) { v.mouse(input.DispatchMouseEventTypeMouseReleased, "#tally dd") }},
		{name: "open details", path: charts, busy: "#charts", other: "#oldest",
			hold: script(`document.querySelector("#charts details").open = true`), letGo: script(`document.querySelector("#charts details").open = false`)},
		// No section has one of these yet.
		{name: "an open dialog", hold: script(`const d = document.createElement("dialog"); document.querySelector("#list").append(d); d.show(); document.activeElement.blur()`), letGo: script(`document.querySelector("#list dialog").close()`)},
		{name: "a text", hold: script(`const i = document.createElement("input"); document.querySelector("#list").append(i); i.value = "mine"`), letGo: script(`document.querySelector("#list > input").value = ""`)},
		{name: "a choice", hold: script(`const s = document.createElement("select"); document.querySelector("#list").append(s); s.add(new Option("a")); s.add(new Option("b")); s.value = "b"`), letGo: script(`document.querySelector("#list > select").value = "a"`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			v := visits(t, cmp.Or(c.path, inGroup))
			busy, other := cmp.Or(c.busy, "#list"), cmp.Or(c.other, "#tally")
			c.hold(v)
			v.mark(busy, other)
			v.change()
			v.exec("DELETE FROM poisoned_messages WHERE id % 2 = 0")
			v.exec("UPDATE message_minutes SET done = done + 1000")
			v.exec("UPDATE consumer_messages SET payload_type = 'changed'")
			v.goesOn()
			if v.stays(other) {
				t.Errorf("%s: %s is as it was, want that it is new", c.name, other)
			}
			if !v.stays(busy) {
				t.Fatalf("%s: %s was replaced, and somebody is busy with it", c.name, busy)
			}
			v.shows("#live", "sections in use stay unchanged")
			c.letGo(v)
			testapp.Poll(t, c.name+": what was let go is new", 20*time.Second, 20*time.Millisecond, func() bool { return !v.stays(busy) })
		})
	}
}

func script(text string) func(*visitor) {
	return func(v *visitor) { v.Helper(); v.run(text) }
}

func (v *visitor) Helper() { v.T.Helper() }

// TestWhatHasNotChanged stays, with whatever the browser knows of it.
func TestWhatHasNotChanged(t *testing.T) {
	t.Parallel()
	v := visits(t, inGroup)
	v.exec("UPDATE poisoned_messages SET poisoned_at = poisoned_at - 864000000000, created_at = created_at - 864000000000") // in days
	v.goesOn()
	v.mark("#list", "#tally", "#howmany")
	v.changeTally()
	v.goesOn()
	if v.stays("#tally") || !v.stays("#list") || !v.stays("#howmany") {
		t.Errorf("got list %t, numbers %t and count %t as they were, want true, false and true", v.stays("#list"), v.stays("#tally"),
			v.stays("#howmany"))
	}
}

// TestOtherSections: a page that has other sections by now is not loaded again, with all that somebody has begun on it.
func TestOtherSections(t *testing.T) {
	t.Parallel()
	t.Run("seen", func(t *testing.T) {
		t.Parallel()
		v := visits(t, "consumer?name=consumer-03#main") // as behind the link that skips the bar
		v.run(`document.querySelector(".me").open = true; document.querySelector(".me select").value = "dark"`)
		v.mark(".me")
		v.exec("DELETE FROM poisoned_messages")
		v.goesOn()
		if pages := v.pages.Load(); pages != 1 {
			t.Fatalf("got %d pages loaded, want 1", pages)
		}
		if eval[bool](v.tab, `document.querySelector("#groups") !== null`) {
			t.Error("a section is still there that is no more")
		}
		v.shows("#failures h2", "Recent failures") // of whose messages none is poisoned now
		if !v.stays(".me") || eval[string](v.tab, `document.querySelector(".me select").value`) != "dark" {
			t.Error("the menu is not as it was")
		}
		v.run(`document.querySelector(".me").open = false`)
		v.keys("r")
		testapp.Eventually(t, "the key r loads the page again", func() bool { return v.pages.Load() == 2 })
	})
	t.Run("written", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, inWorld(t, "normal"), ops.Operator, named("ada"))
		plan := planOf(s)
		v := s.visits(t, fmt.Sprintf("operation?id=%d", plan.ID))
		v.run(`pace = 200; document.querySelector("[name=reason]").value = "the provider is mended"`)
		v.exec("UPDATE message_operations SET state = 'undone' WHERE id = ?", plan.ID)
		v.shows("#head .pill", "undone")
		v.goesOn()
		if got := eval[string](v.tab, `document.querySelector("[name=reason]")?.value ?? ""`); got != "the provider is mended" {
			t.Fatalf("got reason %q, want what was written", got)
		}
		v.run(`document.querySelector("[name=reason]").value = ""`)
		v.shows("#progress", "Changed")
	})
}

// TestAConsoleWithoutRequestsQueriesNothing: then the console asks the database nothing.
func TestAConsoleWithoutRequestsQueriesNothing(t *testing.T) {
	t.Parallel()
	var statements atomic.Int64
	db := inWorld(t, "normal")
	s := newSite(t, db.WithQueryHook(testapp.QueryHook(func(context.Context, string) { statements.Add(1) })), ops.Administrator)
	server := httptest.NewServer(s.console)
	t.Cleanup(server.Close)
	none := func(when string) {
		t.Helper()
		settles(t, when+": no statement is sent", statements.Load)
	}
	none("before anybody has looked")
	if n := statements.Load(); n > 0 {
		t.Errorf("before anybody has looked: got %d statements, want 0", n)
	}
	b := newTab(t)
	b.beforeLoad(paced)
	asked := func(when string) {
		t.Helper()
		began := statements.Load()
		testapp.Poll(t, when+": the database is asked", 20*time.Second, 5*time.Millisecond, func() bool { return statements.Load() > began })
	}
	for _, path := range []string{"consumer?name=consumer-03", inGroup} {
		b.mustVisit(server.URL + prefix + path)
		asked("somebody looks")
		show := b.hide()
		none("the tab is hidden")
		show()
		asked("the tab is seen")
	}
	b.every("0")
	none("somebody has chosen to look never")
	b.every("2")
	asked("somebody looks every 2 s")
	b.leave()
	none("the tab is closed")
}

// TestAFormIsSentOnce, however often somebody clicks on it, and whatever comes in between.
func TestAFormIsSentOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, named("ada"), patient)
	plan := planOf(s)
	testapp.Must[ops.Operation](t)(s.session().Operations().Start(t.Context(), plan.ID, ops.StartOptions{Reason: "because"}))
	v := s.visits(t, fmt.Sprintf("operation?id=%d", plan.ID))
	v.run("pace = 200")
	held, goOn := make(chan bool, 9), make(chan bool)
	v.answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			held <- true
			select {
			case <-goOn:
			case <-r.Context().Done():
			}
		}
		return false
	})
	// Some browsers do not give a button that is clicked the focus, which would keep its section. That somebody clicks on
	// and on is up to the page, since Chromium lets nobody else in while another page is on its way.
	v.run(`setInterval(() => document.querySelector("#head form").requestSubmit(), 50)`)
	<-held
	v.exec("UPDATE message_operations SET kind = 'discard' WHERE id = ?", plan.ID)
	v.goesOn()
	if n := v.posts.Load(); n != 1 {
		t.Fatalf("got the form %d times, want once", n)
	}
	close(goOn)
	testapp.Poll(t, "the browser has gone on", 20*time.Second, 5*time.Millisecond, func() bool { return v.pages.Load() == 2 })
	v.at("operation")
	// A page that the browser has kept can send its form again, and shows what is new.
	v.mustVisit(v.address + inGroup)
	v.run(`document.querySelector("main form[method=post]").dataset.sent = "yes"; dispatchEvent(new Event("beforeunload")); dispatchEvent(new PageTransitionEvent("pageshow", {persisted: true}))`)
	v.mark("#list")
	v.change()
	v.goesOn()
	if v.stays("#list") {
		t.Error("a page that the browser has kept is not live any more")
	}
	v.click(`main form[method="post"] button`)
	v.at("operation")
}
