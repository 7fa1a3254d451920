package console_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// The attacks that a console must withstand have numbers, which stand in the names of their tests. Each of these was
// seen to fail on a console that does not: see integration/mutants.

// everywhere are paths of the console, and some that look as if they were.
func everywhere(t testing.TB) []string {
	t.Helper()
	administratorsChanges(t)
	return slices.Clone(everyChange.paths)
}

// refusedEverywhere sees that nobody gets anything, whatever is asked for, and that nothing changes.
func refusedEverywhere(t *testing.T, s *site, paths []string, want ...int) {
	t.Helper()
	before := digest(t, s.db)
	for _, path := range paths {
		for _, a := range []answer{s.get(path), s.post(path, nil)} {
			if !slices.Contains(want, a.status) || strings.Contains(a.body, "<") {
				t.Errorf("%q: got %s, want a status of %v and no page", path, a, want)
			}
		}
	}
	if digest(t, s.db) != before {
		t.Error("the database was changed")
	}
}

// Promise: console
func TestAttack01NoAuthorize(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "empty"), ops.Viewer)
	c, err := console.New(s.service, console.Config{})
	if c != nil || err == nil || !strings.Contains(err.Error(), "Authorize") {
		t.Errorf("no Authorize: got console %t and error %v, want an error that says so", c != nil, err)
	}
}

// Promise: console
func TestAttack02TheLoginPanics(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, configured(func(c *console.Config) {
		c.LoginURL = "/login"
		c.Authorize = func(*http.Request) (ops.Principal, error) { panic("no session store of " + secret) }
	}))
	refusedEverywhere(t, s, everywhere(t), http.StatusForbidden)
	if log := s.log.String(); !strings.Contains(log, "panicked") {
		t.Errorf("log: got %q, want that it has panicked", log)
	}
}

// Promise: console
func TestAttack03TheLoginRefuses(t *testing.T) {
	t.Parallel()
	refuse := configured(func(c *console.Config) {
		c.Authorize = func(*http.Request) (ops.Principal, error) {
			return ops.Principal{Name: "ada", Role: ops.Administrator}, errors.New("expired")
		}
	})
	refusedEverywhere(t, newSite(t, inWorld(t, "normal"), ops.Administrator, refuse), everywhere(t), http.StatusUnauthorized)
}

// Promise: console
func TestAttack04APrincipalWithoutAName(t *testing.T) {
	t.Parallel()
	paths := everywhere(t)
	for _, who := range []ops.Principal{{}, {Name: "ada"}, {Role: ops.Administrator}, {Name: "ada", Role: ops.Administrator + 1},
		{Name: "ada", Role: 255}} {
		s := newSite(t, inWorld(t, "normal"), ops.Administrator, configured(func(c *console.Config) {
			c.Authorize = func(*http.Request) (ops.Principal, error) { return who, nil }
		}))
		refusedEverywhere(t, s, paths, http.StatusForbidden)
	}
}

// TestAttack07PathsAroundTheLogin: some consoles let everything pass that looks like an asset.
// Promise: console
func TestAttack07PathsAroundTheLogin(t *testing.T) {
	t.Parallel()
	refuse := configured(func(c *console.Config) {
		c.Authorize = func(r *http.Request) (ops.Principal, error) { return ops.Principal{}, errors.New("not logged in") }
	})
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, refuse)
	var around []string
	assets := newSite(t, s.db, ops.Viewer).must("")
	for _, asset := range parse(t, "", assets.body).assets {
		around = append(around, asset, asset+"/../messages", asset+"/%2e%2e/messages", "messages/"+asset, "messages?x=/"+asset)
	}
	around = append(around, "assets/../messages", "assets/%2e%2e/messages", "%2e%2e/messages", "%2e/messages", "messages%2f..",
		"messages;.css", "messages.css", "messages%00.css", "MESSAGES", "./messages", "..;/messages", "assets/..%2fmessages",
		"assets%2f..%2fmessages", "%6dessages")
	refusedEverywhere(t, s, around, http.StatusUnauthorized, http.StatusNotFound)
	// A path above the prefix is none of the console's, and says nothing of it.
	for _, path := range []string{"/", "/asyncmonolithic/", "/other/../asyncmonolith/messages", "//asyncmonolith/messages"} {
		w := httptest.NewRecorder()
		r := request(http.MethodGet, "", nil)
		r.URL.Path = path
		s.console.ServeHTTP(w, r)
		if w.Code != http.StatusNotFound && w.Code != http.StatusUnauthorized {
			t.Errorf("%q: got status %d", path, w.Code)
		}
	}
	for _, asset := range parse(t, "", assets.body).assets {
		if a := s.get(asset); a.status != http.StatusUnauthorized {
			t.Errorf("%q, of somebody who is not logged in: got %s, want status 401", asset, a)
		}
	}
}

// TestAttack13OtherNames: a page of evil.example whose name leads to this address is of the same origin for a browser.
// Promise: console
func TestAttack13OtherNames(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator,
		configured(func(c *console.Config) { c.Hosts = []string{host, "localhost:8080"} }))
	before := digest(t, s.db)
	from := func(name string) func(*http.Request) {
		return func(r *http.Request) {
			r.Host = name
			r.Header.Set("Origin", "http://"+name)
		}
	}
	paths := everywhere(t)
	for _, name := range []string{"evil.example", "evil.example:80", host + ".evil.example", "evil-" + host, "localhost",
		"localhost:8081", "127.0.0.1", "[::1]:8080", ""} {
		for _, path := range paths {
			for _, a := range []answer{s.get(path, from(name)), s.post(path, nil, from(name))} {
				if a.status != http.StatusMisdirectedRequest || strings.Contains(a.body, "<") {
					t.Errorf("%q of %q: got %s, want status 421 and no page", path, name, a)
				}
			}
		}
	}
	if digest(t, s.db) != before {
		t.Error("the database was changed")
	}
	for _, name := range []string{host, host + ":9000", strings.ToUpper(host), "localhost:8080"} {
		if a := s.get("", from(name)); a.status != http.StatusOK {
			t.Errorf("%q: got %s, want status 200", name, a)
		}
	}
}

// TestAttack17Frames: a page of the console in somebody's frame has people click what they do not see.
// Promise: console
func TestAttack17Frames(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, configured(func(c *console.Config) { c.LoginURL = "/login" }))
	check := func(path string, a answer) {
		policy := strings.Split(a.header.Get("Content-Security-Policy"), "; ")
		for _, directive := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'",
			"form-action 'self'", "require-trusted-types-for 'script'"} {
			if !slices.Contains(policy, directive) { // as it is, and nothing beside it
				t.Errorf("%q: got policy %q, want %s", path, policy, directive)
			}
		}
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
			"Referrer-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin"} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%q: got %s %q, want %q", path, name, got, want)
			}
		}
		if cache := a.header.Get("Cache-Control"); cache != "no-store" && !strings.Contains(a.header.Get("Content-Type"), "css") &&
			!strings.Contains(a.header.Get("Content-Type"), "javascript") && !strings.Contains(a.header.Get("Content-Type"), "svg") {
			t.Errorf("%q: got Cache-Control %q, want no-store", path, cache)
		}
	}
	for _, path := range everywhere(t) {
		check(path, s.get(path))
		check(path, s.post(path, nil, header("Origin", "http://evil.example")))
	}
	framed := s.get("", header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Dest", "iframe"))
	if framed.status != http.StatusForbidden {
		t.Errorf("in a frame of another site: got %s, want status 403", framed)
	}
	if linked := s.get("", header("Sec-Fetch-Site", "cross-site")); linked.status != http.StatusOK {
		t.Errorf("by a link of another site: got %s, want status 200", linked)
	}
}

// TestAttack18OpenRedirects: nobody is sent elsewhere by an address of the console.
// Promise: console
func TestAttack18OpenRedirects(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Viewer, configured(func(c *console.Config) { c.LoginURL = "https://login.example/in" }))
	elsewhere := []string{"//evil.example", "https://evil.example", "/\\evil.example", "\\\\evil.example", "///evil.example",
		"http:evil.example", "javascript:alert(1)", "/\t/evil.example", "//evil.example/%2e%2e", "@evil.example", "./..//evil.example",
		".//evil.example", "messages/../../..//evil.example"}
	for _, to := range elsewhere {
		form := map[string][]string{"theme": {"dark"}, "every": {"5"}, "keys": {"true"}}
		for _, name := range []string{"back", "next", "return", "url", "to"} {
			form[name] = []string{to}
		}
		if a := s.post("settings", form); a.status != http.StatusSeeOther || !local(a.header.Get("Location")) {
			t.Errorf("back to %q: got %s, want a page of the console", to, a)
		}
	}
	for _, r := range []string{"", "?next=//evil.example", "messages?back=//evil.example", "settings?back=//evil.example"} {
		for _, change := range []func(*http.Request){header("X-Forwarded-Host", "evil.example"),
			header("Referer", "http://evil.example/"), func(r *http.Request) { r.URL.Path = "//evil.example/" + r.URL.Path }} {
			if a := s.get(r, change); a.header.Get("Location") != "" && !local(a.header.Get("Location")) {
				t.Errorf("%q: got %s", r, a)
			}
		}
	}
	closed := newSite(t, s.db, ops.Viewer, configured(func(c *console.Config) {
		c.LoginURL = "https://login.example/in"
		c.Authorize = func(*http.Request) (ops.Principal, error) { return ops.Principal{}, errors.New("not logged in") }
	}))
	for _, path := range []string{"", "messages?next=//evil.example", "?next=https://evil.example/&LoginURL=//evil.example", "no-such-page"} {
		a := closed.get(path, func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Referer", "//evil.example") })
		if a.status != http.StatusSeeOther || a.header.Get("Location") != "https://login.example/in" {
			t.Errorf("%q, of somebody who is not logged in: got %s, want the login as it is configured", path, a)
		}
	}
	told := newSite(t, s.db, ops.Viewer, configured(func(c *console.Config) {
		c.LoginURL, c.Prefix = "https://login.example/in?next={url}", "/" // below which a path may look like a host
		c.Authorize = func(*http.Request) (ops.Principal, error) { return ops.Principal{}, errors.New("not logged in") }
	}))
	for _, to := range append(elsewhere, "messages?next=//evil.example") {
		a := told.get("", func(r *http.Request) { r.URL = &url.URL{Path: "/" + to}; r.Host = "evil.example" })
		at := testapp.Must[*url.URL](t)(url.Parse(a.header.Get("Location")))
		next := at.Query().Get("next")
		if u, err := url.Parse(next); at.Host != "login.example" || err != nil || u.Host != "" || u.Scheme != "" ||
			!strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.Contains(next, "\\") {
			t.Errorf("%q, and back: got %s, want the login, and a page of the console", to, a)
		}
	}
	if a := closed.post("settings", nil); a.status != http.StatusUnauthorized {
		t.Errorf("a change of somebody who is not logged in: got %s, want status 401", a)
	}
}

// TestAnAllowThatPanics refuses what it was asked about: the page is whole, and has no button for that.
func TestAnAllowThatPanics(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	button, id := `value="requeue"`, strconv.Itoa(count(t, s.db, "SELECT MIN(id) FROM poisoned_messages"))
	if page := s.must("group?consumer=consumer-02"); !strings.Contains(page.body, button) {
		t.Fatalf("got %s, want a button", page)
	}
	s.allow = func(a ops.Action, _ string) bool {
		if a == ops.Requeue {
			panic("no such role")
		}
		return true
	}
	page := s.get("group?consumer=consumer-02")
	if page.status != http.StatusOK || strings.Contains(page.body, button) || !strings.Contains(page.body, "</html>") {
		t.Errorf("got %s, want a whole page without the button", page)
	}
	if page := s.get("confirm?do=requeue&consumer=consumer-02&id=" + id); page.status < 400 {
		t.Errorf("confirm: got %s, want it refused", page)
	}
}
