package console_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// ofEachKind is one page of each kind that a crawl has found.
func ofEachKind(pages map[string]*document) []string {
	first := make(map[string]string)
	for _, path := range slices.Sorted(maps.Keys(pages)) {
		if _, known := first[kindOf(path)]; !known {
			first[kindOf(path)] = path
		}
	}
	return slices.Sorted(maps.Values(first))
}

// how a page is looked at.
type sight struct {
	width int64
	theme string
}

// sights are all four, or the one of two that has its turn: each theme and width comes once to a page that two worlds have.
func sights(turn int) []sight {
	few := []sight{{1280, "light"}, {360, "dark"}}
	if *all {
		return append(few, sight{1280, "dark"}, sight{360, "light"})
	}
	return few[turn%2:][:1]
}

// TestPages: no page of whatever data complains in a browser, or is hard to read for anybody.
func TestPages(t *testing.T) {
	t.Parallel()
	worlds := worlds()
	if !*all {
		worlds = slices.DeleteFunc(worlds, func(w world) bool { return w.name != "normal" && w.name != "hostile" })
	}
	for turn, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, inWorld(t, w.name), ops.Administrator)
			paths := ofEachKind(crawl(s, 6))
			address := s.serve()
			b := newTab(t)
			for _, path := range paths {
				for i, look := range sights(turn + len(kindOf(path))) {
					b.look(look.width, look.theme)
					if i == 0 {
						b.mustVisit(address + path)
					}
					b.accessible(fmt.Sprintf("%q in %s, %d wide", path, look.theme, look.width))
				}
				if eval[bool](b, "window.pwned !== undefined") {
					t.Errorf("%s: a script of somebody's text has run", path)
				}
			}
		})
	}
}

// TestAnHourUnseen: a console without viewers asks the database for nothing.
func TestAnHourUnseen(t *testing.T) {
	testapp.Virtual(t, func(t *testing.T, _ context.Context, newApp func(...bus.Consumer) *testapp.App) {
		a := newApp()
		var statements atomic.Int64
		s := newSite(t, a.DB.WithQueryHook(testapp.QueryHook(func(context.Context, string) { statements.Add(1) })), ops.Administrator)
		for range 2 {
			for _, path := range []string{"", "messages", "find", "poisoned", "suspects", "schedules", "processes", "projections",
				"operations", "doctor"} {
				s.must(path)
			}
			<-time.After(5 * time.Second) // so that what is kept is too old, and is made anew
		}
		asked := statements.Load()
		if asked == 0 {
			t.Fatal("those who looked asked for nothing")
		}
		<-time.After(time.Hour)
		synctest.Wait()
		if more := statements.Load() - asked; more != 0 {
			t.Errorf("got %d statements in an hour, want 0", more)
		}
	})
}

// digest stands for all that the tables of an SQLite database hold.
func digest(t testing.TB, db *bun.DB) string { t.Helper(); return digestOf(t, db, "TRUE") }

// digestOf stands for what some of its tables hold.
func digestOf(t testing.TB, db *bun.DB, which string) string {
	t.Helper()
	var tables []string
	if err := db.NewRaw("SELECT name FROM sqlite_master WHERE type = 'table' AND "+which+" ORDER BY name").Scan(t.Context(),
		&tables); err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	for _, table := range tables {
		var rows []map[string]any
		if err := db.NewRaw("SELECT * FROM ? ORDER BY 1, 2", bun.Ident(table)).Scan(t.Context(), &rows); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(hash, table, rows) // maps are printed in the order of their keys
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// count is the number that a query returns.
func count(t testing.TB, db *bun.DB, query string, args ...any) (n int) {
	t.Helper()
	err := testapp.Insist(func() error { return db.NewRaw(query, args...).Scan(t.Context(), &n) })
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// identifier is a name of the library's or Go's own code, or one that it stores, such as "run_now".
var identifier = regexp.MustCompile(`\b[a-z]+_[a-z_]+\b|\b(bus|ops|outbox|poison|schedule|admin|projection|eventlog|errors|fmt)\.[A-Za-z]*[A-Z][A-Za-z]+`) // immutable

// TestPagesNameNothingOfTheCode: pages speak of what a person sees there.
func TestPagesNameNothingOfTheCode(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]option{"normal": nil, "empty": nil, "hidden": {hidden}} {
		world := name
		if name == "hidden" {
			world = "normal"
		}
		db := inWorld(t, world)
		s := newSite(t, db, ops.Administrator, options...)
		if world == "normal" {
			s.exec("UPDATE message_failures SET error_type = '*errors.errorString'")
		}
		for path, page := range crawl(s, 3) {
			if found := identifier.FindString(page.text); found != "" {
				t.Errorf("%s, %q: got %s", name, path, found)
			}
		}
	}
}

// TestTheFormOfAScheduleKeepsWhatWasTyped: beside that it has the library's own sentence or, where nothing is wrong, the
// next fires; and the audit has the old and the new.
func TestTheFormOfAScheduleKeepsWhatWasTyped(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, named("ada"))
	id := url.Values{"do": {"update_schedule"}, "schedule": {"1"}}
	with := func(expression, zone string) url.Values {
		form := url.Values{"do": id["do"], "schedule": id["schedule"], "expression": {expression}, "zone": {zone}, "reason": {"after the import"}}
		return form
	}
	for _, typed := range [][2]string{{"61 * * * *", "UTC"}, {"0 4 * * *", "Mars/Olympus"}, {"0 0 30 2 *", "UTC"}} {
		_, wrong := operator.NextFires(typed[0], typed[1])
		form := with(typed[0], typed[1])
		for how, a := range map[string]answer{"posted": s.post("do", form), "looked at": s.get("confirm?" + form.Encode())} {
			if want := map[string]int{"posted": http.StatusUnprocessableEntity, "looked at": http.StatusOK}[how]; a.status != want {
				t.Errorf("%q, %s: got %s, want status %d", typed, how, a, want)
			}
			for _, want := range []string{`value="` + typed[0] + `"`, `value="` + typed[1] + `"`, `value="after the import"`, html.EscapeString(wrong)} {
				if !strings.Contains(html.UnescapeString(a.body), html.UnescapeString(want)) || wrong == "" {
					t.Errorf("%q, %s: got %s, want %s", typed, how, a, want)
				}
			}
		}
	}
	if n := count(t, s.db, "SELECT count(*) FROM scheduled_messages WHERE id = 1 AND cron_expression = '*/5 * * * *'"); n != 1 {
		t.Fatal("what is wrong was stored")
	}
	good := with("0 4 * * *", "Europe/Vienna")
	if a := s.must("confirm?" + good.Encode()); strings.Count(a.body, "<li>") < 5 || !strings.Contains(a.body, "04:00:00") {
		t.Errorf("before it is applied: got %s, want the next five fires", a)
	}
	if a := s.post("do", good); a.status != http.StatusSeeOther {
		t.Fatalf("a change: got %s", a)
	}
	s.reads("the audit", "operations", texts{[]string{"schedule 1: */5 * * * * in Europe/Vienna → 0 4 * * * in Europe/Vienna", "after the import"}, nil})
}

// TestAConsumerShowsItsBlockedKeys, however many of other consumers have been blocked longer.
func TestAConsumerShowsItsBlockedKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t, migrated(t, inWorld(t, "empty")), ops.Operator)
	block := func(consumer string, n int, since time.Duration) {
		s.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
			INSERT INTO poisoned_messages (id, message_id, consumer_type, payload_type, payload, created_at, available_after, attempts, crashes,
			errors, poisoned_at, reason, order_key, lane, rank, parks)
			SELECT i + 10000 * ?, printf('00000000-0000-7000-8000-%012d', i), ?, 'order.placed', '{}', ?, ?, 5, 0, '[]', ?, 'why', ? || i, i + 1, i, TRUE FROM n`,
			n, len(consumer), consumer, s.ago(since), s.ago(since), s.ago(since), consumer+"-key-")
	}
	block("mail", 1000, 2*time.Hour)
	block("stocks", 1, time.Hour)
	if page := s.must("consumer?name=stocks").body; !strings.Contains(page, "stocks-key-1") || strings.Contains(page, "mail-key-") {
		t.Error("want the blocked key of the consumer, and no other")
	}
}
