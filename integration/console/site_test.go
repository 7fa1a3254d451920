package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

const (
	prefix = "/asyncmonolith/"
	// host is that of requests which need no server.
	host = "console.example"
	// busy is the status of pages that could not be had because others look, too, and often that of more
	// than somebody may ask for.
	busy, often = http.StatusServiceUnavailable, http.StatusTooManyRequests
)

// seeds are SQLite databases that were written once, of which each test gets a copy.
type seeds struct {
	mu sync.Mutex
	of map[string][]byte // worlds to files
}

var prepared = &seeds{of: make(map[string][]byte)} // immutable but for what is locked

// copyOf is a database file of a world.
func (p *seeds) copyOf(t testing.TB, w world) string {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	path := filepath.Join(t.TempDir(), w.name+".db")
	if made := p.of[w.name]; made != nil {
		if err := os.WriteFile(path, made, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	db := testdb.OpenSQLite(t, path)
	migrated(t, db)
	seed(t, db, w)
	// All of it is in the one file when the database is closed.
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	p.of[w.name] = testapp.Must[[]byte](t)(os.ReadFile(path))
	return path
}

// migrated is a database with the tables, and nothing in them.
func migrated(t testing.TB, db *bun.DB) *bun.DB {
	t.Helper()
	if err := outbox.Migrate(t.Context(), db, bus.Tables{}); err != nil {
		t.Fatal(err)
	}
	return db
}

// inWorld is a database of a world.
func inWorld(t testing.TB, name string) *bun.DB {
	t.Helper()
	return testdb.OpenSQLite(t, prepared.copyOf(t, worldOf(t, name)))
}

// site is a console, and who asks.
type site struct {
	testing.TB
	db      *bun.DB
	service *ops.Service
	console *console.Console
	log     *testapp.Lines
	role    atomic.Uint32
	name    string // of who asks; empty: each request has another, so that none asks too often
	asked   atomic.Int64
	allow   func(ops.Action, string) bool
}

type consoleConfig = console.Config

// option changes how a site is set up.
type option func(*site, *ops.Config, *consoleConfig)

func hidden(_ *site, c *ops.Config, _ *consoleConfig) { c.Redact = nil }

func named(name string) option {
	return func(s *site, _ *ops.Config, _ *consoleConfig) { s.name = name }
}

func configured(change func(*consoleConfig)) option {
	return func(_ *site, _ *ops.Config, c *consoleConfig) { change(c) }
}

func registryOf(t testing.TB, prefix string) *bus.Registry {
	t.Helper()
	return testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Tables: bus.Tables{Prefix: prefix}}.NewRegistry())
}

// newSite makes a console for a database.
func newSite(t testing.TB, db *bun.DB, role ops.Role, options ...option) *site {
	t.Helper()
	s := &site{TB: t, db: db, log: new(testapp.Lines)}
	s.role.Store(uint32(role))
	service := ops.Config{DB: db, Registry: registryOf(t, ""), Redact: ops.ShowAll, Logger: s.log.Logger(), UndoWindow: 300 * time.Millisecond}
	c := console.Config{Authorize: s.authorize, Logger: s.log.Logger(), Environment: "test", TraceURL: "https://traces.example/{trace}"}
	for _, o := range options {
		o(s, &service, &c)
	}
	s.service = testapp.Must[*ops.Service](t)(ops.New(service))
	s.console = testapp.Must[*console.Console](t)(console.New(s.service, c))
	return s
}

func (s *site) authorize(*http.Request) (ops.Principal, error) {
	name := s.name
	if name == "" {
		name = fmt.Sprint("somebody-", s.asked.Add(1))
	}
	return ops.Principal{Name: name, Role: ops.Role(s.role.Load()), Allow: s.allow}, nil
}

// as lets the requests that follow be those of a role.
func (s *site) as(role ops.Role) { s.role.Store(uint32(role)) }

// answer is what the console said.
type answer struct {
	status int
	header http.Header
	body   string
}

// String is what a person makes of it.
func (a answer) String() string {
	text := a.body
	if _, main, found := strings.Cut(text, "<main"); found {
		text = "<main" + main
	}
	return fmt.Sprintf("status %d, location %q: %.300s", a.status, a.header.Get("Location"), strings.Join(strings.Fields(text), " "))
}

// request is one of a browser that is on a page of the console.
func request(method, path string, form url.Values, changes ...func(*http.Request)) *http.Request {
	r := httptest.NewRequest(method, "http://"+host+prefix+path, strings.NewReader(form.Encode()))
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Sec-Fetch-Dest", "document")
	if method == http.MethodPost {
		r.Header.Set("Origin", "http://"+host)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, change := range changes {
		change(r)
	}
	return r
}

// ask has the console answer a request.
func (s *site) ask(r *http.Request) answer {
	s.Helper()
	w := httptest.NewRecorder()
	s.console.ServeHTTP(w, r.WithContext(s.Context()))
	return answer{w.Code, w.Result().Header, w.Body.String()}
}

// once is one request that is not sent again.
func (s *site) once(method, path string) answer {
	s.Helper()
	return s.ask(request(method, path, nil))
}

// send has the console answer a request. One for which it is too busy is sent again.
func (s *site) send(make func() *http.Request) (a answer) {
	s.Helper()
	testapp.Eventually(s.TB, "the console is not busy", func() bool {
		a = s.ask(make())
		return a.status != busy && (a.status != often || s.name == "")
	})
	return a
}

func (s *site) get(path string, changes ...func(*http.Request)) answer {
	s.Helper()
	return s.send(func() *http.Request { return request(http.MethodGet, path, nil, changes...) })
}

func (s *site) post(path string, form url.Values, changes ...func(*http.Request)) answer {
	s.Helper()
	return s.send(func() *http.Request { return request(http.MethodPost, path, form, changes...) })
}

// must is a page that has to be there.
func (s *site) must(path string) answer {
	s.Helper()
	a := s.get(path)
	if a.status != http.StatusOK {
		s.Fatalf("%s: got %s\n%s", path, a, s.log)
	}
	return a
}

// serve serves the console to browsers, and returns its address.
func (s *site) serve() string {
	s.Helper()
	server := httptest.NewServer(s.console)
	s.Cleanup(server.Close)
	return server.URL + prefix
}

// header sets one of a request, or removes it.
func header(name, value string) func(*http.Request) {
	return func(r *http.Request) {
		if value == "" {
			r.Header.Del(name)
			return
		}
		r.Header.Set(name, value)
	}
}
