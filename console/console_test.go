package console_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// away is a database that does not answer: what these tests are about is decided before, or does not need it.
type away struct{ err error }

func (a away) Connect(context.Context) (driver.Conn, error) { return nil, a.err }

func (away) Driver() driver.Driver { return nil }

func service(t *testing.T) *ops.Service {
	t.Helper()
	return serviceOf(t, away{errors.New("postgres://ada:secret@db.internal/app is away")})
}

func serviceOf(t *testing.T, conns driver.Connector) *ops.Service {
	t.Helper()
	db := bun.NewDB(sql.OpenDB(conns), pgdialect.New())
	t.Cleanup(func() { _ = db.Close() })
	registry, err := bus.NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	d, err := ops.New(ops.Config{DB: db, Registry: registry, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func as(role ops.Role) func(*http.Request) (ops.Principal, error) {
	return func(*http.Request) (ops.Principal, error) { return ops.Principal{Name: "ada", Role: role}, nil }
}

func newConsole(t *testing.T, c console.Config) *console.Console {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Authorize == nil {
		c.Authorize = as(ops.Administrator)
	}
	handler, err := console.New(service(t), c)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// ask asks for a page; change changes the request first.
func ask(h http.Handler, method, target, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if method == http.MethodPost {
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestNewRefusesWhatIsOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config console.Config
		says   string
	}{
		"nobody authorizes":             {console.Config{}, "Authorize is nil"},
		"a prefix without a last slash": {console.Config{Authorize: as(ops.Viewer), Prefix: "/ops"}, "Prefix"},
		"a prefix of another host":      {console.Config{Authorize: as(ops.Viewer), Prefix: "//evil/"}, "Prefix"},
		"a script as login":             {console.Config{Authorize: as(ops.Viewer), LoginURL: "javascript:alert(1)"}, "LoginURL"},
		"a login at what was asked for": {console.Config{Authorize: as(ops.Viewer), LoginURL: "{url}"}, "LoginURL"},
		"a login whose host was asked":  {console.Config{Authorize: as(ops.Viewer), LoginURL: "https://{url}/?next={url}"}, "LoginURL"},
		"a script as trace":             {console.Config{Authorize: as(ops.Viewer), TraceURL: "javascript:{trace}"}, "TraceURL"},
		"a trace without its place":     {console.Config{Authorize: as(ops.Viewer), TraceURL: "https://traces"}, "TraceURL"},
		"a host with a path":            {console.Config{Authorize: as(ops.Viewer), Hosts: []string{"a/b"}}, "Hosts"},
		"an origin that is none":        {console.Config{Authorize: as(ops.Viewer), TrustedOrigins: []string{"example.com"}}, "TrustedOrigins"},
	} {
		if _, err := console.New(service(t), c.config); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got error %v, want one that says %q", name, err, c.says)
		}
	}
	if _, err := console.New(nil, console.Config{Authorize: as(ops.Viewer)}); err == nil {
		t.Error("a console without a service was made")
	}
}

const admitted = http.StatusInternalServerError // by a database that is away

func TestGuards(t *testing.T) {
	t.Parallel()
	set := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Del(pairs[i])
				if pairs[i+1] != "" {
					r.Header.Set(pairs[i], pairs[i+1])
				}
			}
		}
	}
	panics := func(*http.Request) (ops.Principal, error) { panic("oh") }
	fails := func(*http.Request) (ops.Principal, error) {
		return ops.Principal{Name: "ada", Role: ops.Administrator}, errors.New("no session")
	}
	for name, c := range map[string]struct {
		config       console.Config
		method, path string
		body         string
		change       func(*http.Request)
		want         int
	}{
		"a page":                                  {path: "messages", want: admitted},
		"no page":                                 {path: "nothing", want: 404},
		"a folder of pages":                       {path: "messages/", want: 404},
		"an escaped slash":                        {path: "a%2fb", want: 404},
		"a change of a page":                      {method: "POST", path: "messages", want: 405},
		"a look at a change":                      {path: "do", want: 405},
		"a method that is not known":              {method: "DELETE", path: "messages", want: 405},
		"an authorizer that panics":               {config: console.Config{Authorize: panics}, path: "messages", want: 403},
		"an authorizer that panics, with a login": {config: console.Config{Authorize: panics, LoginURL: "/login"}, path: "messages", want: 403},
		"an authorizer that fails":                {config: console.Config{Authorize: fails}, path: "messages", want: 401},
		"an authorizer that fails, with a login":  {config: console.Config{Authorize: fails, LoginURL: "/login"}, path: "messages", want: 303},
		"a fragment whose login is over": {config: console.Config{Authorize: fails, LoginURL: "/login"}, path: "messages",
			change: set("X-Asyncmonolith-Fragment", "main"), want: 401},
		"a change whose login is over": {config: console.Config{Authorize: fails, LoginURL: "/login"}, method: "POST",
			path: "do", want: 401},
		"no role":                  {config: console.Config{Authorize: as(ops.None)}, path: "messages", want: 403},
		"a role that is not known": {config: console.Config{Authorize: as(9)}, path: "messages", want: 403},
		"no name": {config: console.Config{Authorize: func(*http.Request) (ops.Principal,
			error) {
			return ops.Principal{Role: ops.Administrator}, nil
		}}, path: "messages", want: 403},
		"no role, for a page that there is not": {config: console.Config{Authorize: as(ops.None)}, path: "assets/../x", want: 403},
		"another host":                          {config: console.Config{Hosts: []string{"ops.example.com"}}, path: "messages", want: 421},
		"its host":                              {config: console.Config{Hosts: []string{"EXAMPLE.com"}}, path: "messages", want: admitted},
		"its host on a port":                    {config: console.Config{Hosts: []string{"example.com:8080"}}, path: "messages", want: 421},
		"a form of another site":                {method: "POST", path: "settings", change: set("Sec-Fetch-Site", "cross-site"), want: 403},
		"a form of another host of this site":   {method: "POST", path: "settings", change: set("Sec-Fetch-Site", "same-site"), want: 403},
		"a form of no origin": {method: "POST", path: "settings", change: set("Sec-Fetch-Site", "", "Origin", "null"),
			want: 403},
		"a form that says nothing of its origin": {method: "POST", path: "settings", change: set("Sec-Fetch-Site", ""), want: 403},
		"a form of our origin": {method: "POST", path: "settings",
			change: set("Sec-Fetch-Site", "", "Origin", "http://example.com"), want: 303},
		"a form of a trusted origin": {config: console.Config{TrustedOrigins: []string{"https://admin.example"}}, method: "POST",
			path: "settings", change: set("Sec-Fetch-Site", "cross-site", "Origin", "https://admin.example"), want: 303},
		"a link from another site": {path: "messages",
			change: set("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"), want: admitted},
		"a frame of another site": {path: "messages",
			change: set("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"), want: 403},
		"a picture of another site": {path: "messages",
			change: set("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"), want: 403},
		"a long address":                 {path: "messages?x=" + strings.Repeat("a", 9000), want: 414},
		"an address that cannot be read": {path: "messages?a=%zz", want: 400},
		"a large form":                   {method: "POST", path: "settings", body: "a=" + strings.Repeat("a", 2<<20), want: 413},
		"a form that is a file": {method: "POST", path: "settings",
			change: set("Content-Type", "multipart/form-data; boundary=a"), want: 415},
		"a form that cannot be read": {method: "POST", path: "settings", body: "a=%zz", want: 400},
		"an id beyond numbers":       {path: "message?id=9223372036854775808", want: 400},
		"an id that is none":         {path: "message?id=-1", want: 400},
		"a name without end":         {path: "consumer?name=" + strings.Repeat("a", 2000), want: 400},
		"a change by a viewer":       {config: console.Config{Authorize: as(ops.Viewer)}, method: "POST", path: "do", want: 403},
		"an edit by an operator":     {config: console.Config{Authorize: as(ops.Operator)}, path: "edit?id=1", want: 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.method == "" {
				c.method = http.MethodGet
			}
			w := ask(newConsole(t, c.config), c.method, "http://example.com/asyncmonolith/"+c.path, c.body, c.change)
			if w.Code != c.want {
				t.Errorf("%s %s: got %d %s, want %d", c.method, c.path, w.Code, w.Body, c.want)
			}
			if w.Header().Get("Content-Security-Policy") == "" || w.Header().Get("X-Frame-Options") != "DENY" ||
				w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: its headers leave something open: %v", c.method, c.path, w.Header())
			}
			if w.Code == http.StatusMethodNotAllowed && w.Header().Get("Allow") == "" {
				t.Errorf("%s %s: 405 without Allow", c.method, c.path)
			}
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("%s %s: the answer shows an error of the database: %s", c.method, c.path, w.Body)
			}
		})
	}
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	h := newConsole(t, console.Config{Prefix: "/a b/ops/"})
	w := ask(h, http.MethodGet, "/a%20b/ops", "", nil)
	if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != "ops/" {
		t.Errorf("without the last slash: got %d to %q, want 303 to ops/", w.Code, got)
	}
	if w := ask(h, http.MethodGet, "/a%20b/ops/messages", "", nil); w.Code != admitted {
		t.Errorf("a page below an escaped prefix: got %d, want %d", w.Code, admitted)
	}
	if w := ask(h, http.MethodGet, "/ops/messages", "", nil); w.Code != http.StatusNotFound {
		t.Errorf("a page beside the prefix: got %d, want 404", w.Code)
	}
}

// TestBackStaysHere: a form that says where to go back to cannot send anybody elsewhere.
func TestBackStaysHere(t *testing.T) {
	t.Parallel()
	for back, want := range map[string]string{
		"messages?consumer=..%2F": "messages?consumer=..%2F", "./": "./", "": "./",
		"https://evil.example/": "./", "//evil.example/messages": "./", "javascript:alert(1)": "./", "../../admin": "./", "do": "./",
		"edited": "./", "\\\\evil": "./", "/messages": "./",
	} {
		w := ask(newConsole(t, console.Config{}), http.MethodPost, "/asyncmonolith/settings",
			"theme=dark&back="+strings.NewReplacer(":", "%3A", "?", "%3F", "=", "%3D", "%", "%25").Replace(back), nil)
		if got := w.Header().Get("Location"); got != want {
			t.Errorf("back to %q: got %q, want %q", back, got, want)
		}
	}
}

func TestRates(t *testing.T) {
	t.Parallel()
	pages, changes := newConsole(t, console.Config{}), newConsole(t, console.Config{})
	synctest.Test(t, func(t *testing.T) { // where all requests come at one time
		code := 0
		for range 60 {
			if code = ask(pages, http.MethodGet, "/asyncmonolith/nothing", "", nil).Code; code == http.StatusTooManyRequests {
				break
			}
		}
		if code != http.StatusTooManyRequests {
			t.Errorf("60 requests at once: got %d at the end, want 429", code)
		}
		codes := map[int]int{}
		for range 5 {
			codes[ask(changes, http.MethodPost, "/asyncmonolith/do", "do=pause&consumer=mail", nil).Code]++
		}
		if codes[http.StatusTooManyRequests] == 0 {
			t.Errorf("5 changes at once: got %v, want 429 among them", codes)
		}
	})
}

// TestALoginComesBack: a login is told which page was asked for, and never one elsewhere, whoever has made the address.
func TestALoginComesBack(t *testing.T) {
	t.Parallel()
	fails := func(*http.Request) (ops.Principal, error) { return ops.Principal{}, errors.New("no session") }
	long := "?consumer=" + strings.Repeat("a", 3000)
	for _, c := range []struct{ prefix, target, want string }{
		{"/ops/", "/ops/", "/ops/"},
		{"/ops/", "/ops", "/ops/"},
		{"/ops/", "/ops/group?consumer=charge-card&fingerprint=1%2626", "/ops/group?consumer=charge-card&fingerprint=1%2626"},
		{"/ops/", "/ops/message?id=1&next=https://evil.example/%0d%0aSet-Cookie:a=b",
			"/ops/message?id=1&next=https%3A%2F%2Fevil.example%2F%0D%0ASet-Cookie%3Aa%3Db"},
		{"/ops/", "/ops/message" + long, "/ops/message"},
		{"/ops/", "/ops/..//evil.example", "/ops/"},
		{"/ops/", "/ops/%2e%2e", "/ops/"},
		{"/ops/", "/ops//evil.example", "/ops/"},
		{"/ops/", "/ops/assets/console.js", "/ops/"},
		{"/", "//evil.example", "/"},
		{"/", "/%5cevil.example/x", "/"},
		{"/", "/\tevil", "/%09evil"},
		{"/", "/messages?x=//evil.example", "/messages?x=%2F%2Fevil.example"},
		{"/a b/", "/a%20b/messages", "/a%20b/messages"},
	} {
		h := newConsole(t, console.Config{Authorize: fails, Prefix: c.prefix, LoginURL: "https://login.example/in?a=b&next={url}"})
		w := ask(h, http.MethodGet, "http://shop.example/", "", func(r *http.Request) {
			u, err := url.Parse("http://shop.example" + strings.ReplaceAll(c.target, "\t", "%09"))
			if err != nil {
				t.Fatal(err)
			}
			r.URL, r.Host = u, "evil.example"
		})
		at, err := url.Parse(w.Header().Get("Location"))
		if err != nil || w.Code != http.StatusSeeOther || at.Host != "login.example" || at.Query().Get("a") != "b" ||
			at.Query().Get("next") != c.want || len(at.Query()) != 2 {
			t.Errorf("%s below %s: got %d to %q, want 303 to the login, and next %q", c.target, c.prefix, w.Code, w.Header().Get("Location"), c.want)
		}
	}
	w := ask(newConsole(t, console.Config{Authorize: fails, LoginURL: "/login"}), http.MethodGet, "/asyncmonolith/messages?x=1", "", nil)
	if got := w.Header().Get("Location"); got != "/login" {
		t.Errorf("a login that is not told: got %q, want /login", got)
	}
}

// answer is what PostgreSQL says, as pgx has it.
type answer string

func (a answer) Error() string { return "secret: SQLSTATE " + string(a) }

func (a answer) SQLState() string { return string(a) }

// MySQLError is what MariaDB says, as go-sql-driver has it: by this name and these fields.
type MySQLError struct {
	Number   uint16
	SQLState [5]byte
}

func (e *MySQLError) Error() string { return fmt.Sprintf("secret: error %d", e.Number) }

// TestADatabaseThatIsAway is no error of the console, and the page looks again until it is back.
func TestADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	const silent, full = "The database does not answer.", "The database has no free connection, memory or disk space."
	for err, says := range map[error]string{
		&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("db.internal: connection refused")}: silent,
		&net.DNSError{Name: "db.internal"}: silent, io.ErrUnexpectedEOF: silent,
		fmt.Errorf("secret: %w", driver.ErrBadConn): silent, answer("57P01"): silent, answer("57P02"): silent, answer("57P03"): silent,
		answer("53300"): full, answer("25006"): "The database is read-only.",
		&MySQLError{1040, [5]byte([]byte("08004"))}: silent, &MySQLError{1053, [5]byte([]byte("08S01"))}: silent, &MySQLError{1203,
			[5]byte([]byte("42000"))}: full,
	} {
		h, wrong := console.New(serviceOf(t, away{err}), console.Config{Authorize: as(ops.Operator), Logger: slog.New(slog.DiscardHandler)})
		if wrong != nil {
			t.Fatal(wrong)
		}
		for _, path := range []string{"", "messages", "operation?id=1", "doctor"} {
			w := ask(h, http.MethodGet, "/asyncmonolith/"+path, "", nil)
			body := w.Body.String()
			if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(body, says) ||
				!strings.Contains(body, `id="passes" data-live`) || strings.Contains(body, "internal/") || strings.Contains(body, "secret") {
				t.Errorf("%q while %v: got %d %s, want 503 and %q", path, err, w.Code, body, says)
			}
		}
		w := ask(h, http.MethodPost, "/asyncmonolith/do", "do=pause&consumer=mail", nil)
		if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "data-live") {
			t.Errorf("a change while %v: got %d %s, want 503 and no page that looks again: it would be another", err, w.Code, w.Body)
		}
	}
}
