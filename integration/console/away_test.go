package console_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/sqlitedialect"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// doors lets connections be made while it is open.
type doors struct {
	sqlite driver.Driver
	path   string
	closed *atomic.Bool
}

func (d doors) Connect(context.Context) (driver.Conn, error) {
	if d.closed.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	return d.sqlite.Open("file:" + d.path)
}

func (d doors) Driver() driver.Driver { return d.sqlite }

// withDoors is a site whose database goes away while the doors are closed.
func withDoors(t *testing.T) (s *site, closed *atomic.Bool) {
	t.Helper()
	path := prepared.copyOf(t, worldOf(t, "normal"))
	d := doors{testdb.OpenSQLite(t, path).Driver(), path, new(atomic.Bool)}
	conns := sql.OpenDB(d)
	conns.SetMaxIdleConns(-1) // each statement has a connection of its own
	db := bun.NewDB(conns, sqlitedialect.New())
	t.Cleanup(func() { _ = db.Close() })
	return newSite(t, db, ops.Viewer), d.closed
}

// TestADatabaseThatIsAwayIsABar: each page keeps its title and its tab, and the overview shows what is known.
func TestADatabaseThatIsAwayIsABar(t *testing.T) {
	t.Parallel()
	s, closed := withDoors(t)
	tab := regexp.MustCompile(`aria-current="page">\w+`)
	before := make(map[string]answer)
	for _, path := range ofEachKind(crawl(s, 2)) {
		before[path] = s.must(path)
	}
	closed.Store(true)
	// An overview is kept for fifty times as long as it took, which may be seconds beside other tests.
	testapp.Poll(t, "the overview says that it is old", 3*time.Minute, 100*time.Millisecond, func() bool {
		return strings.Contains(s.get("").body, "The database does not answer. Values shown are as of <span")
	})
	if a := s.must(""); !strings.Contains(a.body, "consumer-03") {
		t.Errorf("the overview: got %s, want the consumers from before", a)
	}
	for path, page := range before {
		if kindOf(path) == "" || kindOf(path) == "find" { // which reads nothing before it is asked for something
			continue
		}
		a := s.once(http.MethodGet, path)
		for _, want := range []string{`role="status">The database does not answer.`, "<h1>", "the overview</a> as of", tab.FindString(page.body)} {
			if a.status != busy || !strings.Contains(a.body, want) || strings.Contains(a.body, "Service Unavailable") {
				t.Errorf("%q: got %s, want status 503 and %q", path, a, want)
			}
		}
	}
	closed.Store(false)
	if a := s.get("messages"); strings.Contains(a.body, "does not answer") || !strings.Contains(a.body, `id="away" role="status" hidden>`) {
		t.Errorf("it is back: got %s, want no bar", a)
	}
}

// TestAPartThatWasNeverReadIsNotEmpty: the overview says so, and does not say that there is none.
func TestAPartThatWasNeverReadIsNotEmpty(t *testing.T) {
	t.Parallel()
	for table, texts := range map[string]texts{
		"paused_consumers": {[]string{"Could not be read: queues.", "Consumers could not be read."},
			[]string{"No consumers yet", "0 consumers"}},
		"message_failures":  {[]string{"Could not be read: failures.", "Failures could not be read."}, []string{"No failures were reported"}},
		"message_processes": {[]string{"Could not be read: states, processes.", "6 consumers"}, []string{"0 programs"}},
	} {
		s := newSite(t, inWorld(t, "normal"), ops.Viewer)
		s.exec("ALTER TABLE " + table + " RENAME TO gone")
		s.reads(table, "", texts)
	}
}

// TestALivePageStaysWhileTheDatabaseIsAway with what it has, below a bar.
func TestALivePageStaysWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	s, closed := withDoors(t)
	v := s.visits(t, "messages")
	closed.Store(true)
	v.shows("#away", "The database does not answer.")
	v.shows("#away", "This page is as of ")
	v.shows("#list", "consumer-")
	if all := v.violations(); len(all) > 0 {
		t.Errorf("a page below the bar: got %q", all)
	}
	v.complaints() // of the status
	closed.Store(false)
	v.shows("#live", "Refreshed")
	v.complaints() // of a look in between
	if !eval[bool](v.tab, `document.querySelector("#away").hidden`) {
		t.Error("the bar is there while the database answers")
	}
}

// TestTheDatabaseIsBack: a page that could not be had comes by itself once the database is back.
func TestTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	s, closed := withDoors(t)
	closed.Store(true)
	b := newTab(t)
	b.visit(s.serve() + "messages")
	if text := b.text(); !strings.Contains(text, "The database does not answer.") {
		t.Fatalf("while it is away: got %.300q", text)
	}
	b.complaints() // of the status
	b.accessible("a page while the database is away")
	b.complaints()
	closed.Store(false)
	testapp.Eventually(t, "the page is there", func() bool {
		return eval[string](b, "`${document.querySelector('h1')?.innerText} ${document.querySelector('.tabs [aria-current]')?.innerText}`") == "Messages Messages"
	})
}
