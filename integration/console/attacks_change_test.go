package console_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// everyName are the names of all changes that the source of the console has.
func everyName(t testing.TB) (names []string) {
	t.Helper()
	match := func(file, pattern string) (found []string) {
		text := testapp.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "console", file)))
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			found = append(found, string(m[1]))
		}
		return found
	}
	for _, path := range match("routes.go", `path: "([^"]*)", method: post`) {
		switch path {
		case "settings":
		case "do":
			for _, deed := range match("action.go", `\{name: "([^"]+)", (?:permission|of):`) {
				names = append(names, "do "+deed)
			}
		case "plan":
			for _, a := range []ops.Action{ops.Requeue, ops.Discard, ops.RunNow, ops.Reschedule, ops.Cancel, ops.RetryParked, ops.Rebuild,
				ops.Promote} {
				names = append(names, "plan "+string(a))
			}
		default:
			names = append(names, path)
		}
	}
	return names
}

// TestEveryChangeIsAttacked: the forms that a crawl finds are all the changes that there are, so that what
// follows attacks each of them.
func TestEveryChangeIsAttacked(t *testing.T) {
	t.Parallel()
	found, all := administratorsChanges(t), everyName(t)
	if len(all) < 20 {
		t.Fatalf("the source of the console has the changes %v, want more", all)
	}
	for _, name := range all {
		if found[name].action == "" {
			t.Errorf("%s: no page of the normal world has its form", name)
		}
	}
}

// filledIn is what a form sends when a person has filled it in.
func filledIn(f form) url.Values {
	values := url.Values{}
	for name, texts := range f.fields {
		for _, text := range texts {
			if text == "" {
				switch name {
				case "reason", "note":
					text = "because"
				case "sure":
					text = "1"
				case "at":
					text = "2030-01-01 00:00:00"
				}
			}
			values.Add(name, text)
		}
	}
	return values
}

// replay sends each change, and returns those that were let through.
func replay(s *site, changes map[string]form) (through []string) {
	s.Helper()
	for _, action := range slices.Sorted(maps.Keys(changes)) {
		if a := s.post(changes[action].action, filledIn(changes[action])); a.status != http.StatusForbidden {
			through = append(through, fmt.Sprintf("%s: %s", action, a))
		}
	}
	return through
}

// Promise: console
func TestAttack05AViewerChanges(t *testing.T) {
	t.Parallel()
	forms := administratorsChanges(t)
	s := newSite(t, inWorld(t, "normal"), ops.Viewer)
	before := digest(t, s.db)
	if through := replay(s, forms); len(through) > 0 || len(forms) == 0 {
		t.Errorf("of %d changes were let through: %v", len(forms), through)
	}
	if digest(t, s.db) != before {
		t.Error("the database was changed")
	}
	if offered := changes(crawl(s, 4)); len(offered) > 0 {
		t.Errorf("a viewer is offered %v", slices.Sorted(maps.Keys(offered)))
	}
}

// Promise: console
func TestAttack06AnOperatorDoesWhatCannotBeUndone(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	forms := administratorsChanges(t)
	s.as(ops.Operator)
	offered := changes(crawl(s, 4))
	delete(forms, "start") // of who has planned it, whatever it is: see attack 23
	delete(forms, "do undo")
	for action := range offered {
		delete(forms, action)
	}
	if len(offered) == 0 || len(forms) == 0 {
		t.Fatalf("an operator is offered %d changes, and not %d: want some of both", len(offered), len(forms))
	}
	before := digest(t, s.db)
	if through := replay(s, forms); len(through) > 0 {
		t.Errorf("were let through: %v", through)
	}
	// What an operator may plan, with the action of what only an administrator may.
	for name, f := range offered {
		for _, forbidden := range []string{"cancel", "discard", "edit", "export", "delete schedule", "update schedule", "rebuild", "promote"} {
			values := filledIn(f)
			values.Set("do", forbidden)
			if _, asked := f.fields["do"]; !asked {
				continue
			}
			if a := s.post(f.action, values); a.status != http.StatusForbidden && a.status != http.StatusBadRequest {
				t.Errorf("%s with %q: got %s", name, forbidden, a)
			}
		}
	}
	if digest(t, s.db) != before {
		t.Error("the database was changed")
	}
}

// Promise: console
func TestAttack08ChangesByGet(t *testing.T) {
	t.Parallel()
	forms := administratorsChanges(t)
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	before := digest(t, s.db)
	for action, f := range forms {
		query := "?" + filledIn(f).Encode()
		for _, change := range [][]func(*http.Request){
			nil,
			{header("X-HTTP-Method-Override", "POST"), header("X-Method-Override", "POST")},
			{func(r *http.Request) { r.Method = http.MethodHead }},
			{func(r *http.Request) { r.Method = http.MethodPut }},
			{func(r *http.Request) { r.Method = "post" }},
		} {
			if a := s.get(f.action+query+"&_method=POST", change...); a.status != http.StatusMethodNotAllowed {
				t.Errorf("%s: got %s, want status 405", action, a)
			}
		}
	}
	if digest(t, s.db) != before {
		t.Error("the database was changed")
	}
}

// refusesFrom sends each change as pages of others would have a browser send it.
func refusesFrom(t *testing.T, requests map[string][]func(*http.Request)) {
	t.Helper()
	forms := administratorsChanges(t)
	forms["settings"] = form{"", http.MethodPost, "settings", url.Values{"theme": {"dark"}}}
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	before := digest(t, s.db)
	for what, change := range requests {
		for action, f := range forms {
			if a := s.post(f.action, filledIn(f), change...); a.status != http.StatusForbidden || a.header.Get("Set-Cookie") != "" {
				t.Errorf("%s, %s: got %s, want status 403", action, what, a)
			}
		}
	}
	if digest(t, s.db) != before {
		t.Error("the database was changed")
	}
}

// Promise: console
func TestAttack09ChangesFromOtherSites(t *testing.T) {
	t.Parallel()
	refusesFrom(t, map[string][]func(*http.Request){
		"a page elsewhere":           {header("Sec-Fetch-Site", "cross-site"), header("Origin", "http://evil.example")},
		"one that hides where":       {header("Sec-Fetch-Site", "cross-site"), header("Origin", "")},
		"an old browser":             {header("Sec-Fetch-Site", ""), header("Origin", "http://evil.example")},
		"another port":               {header("Sec-Fetch-Site", ""), header("Origin", "http://"+host+":8081")},
		"a name that begins as ours": {header("Sec-Fetch-Site", ""), header("Origin", "http://"+host+".evil.example")},
		"a page elsewhere that says navigate": {header("Sec-Fetch-Site", "cross-site"), header("Sec-Fetch-Mode", "navigate"),
			header("Origin", "http://evil.example")},
	})
}

// Promise: console
func TestAttack10ChangesFromTheSameSite(t *testing.T) {
	t.Parallel()
	refusesFrom(t, map[string][]func(*http.Request){
		"a neighbour":            {header("Sec-Fetch-Site", "same-site"), header("Origin", "http://blog.example")},
		"a neighbour, no origin": {header("Sec-Fetch-Site", "same-site"), header("Origin", "")},
	})
}

// Promise: console
func TestAttack11ChangesOfNoOrigin(t *testing.T) {
	t.Parallel()
	refusesFrom(t, map[string][]func(*http.Request){
		"a sandboxed frame":           {header("Sec-Fetch-Site", "cross-site"), header("Origin", "null")},
		"a sandboxed frame of before": {header("Sec-Fetch-Site", ""), header("Origin", "null")},
	})
}

// TestAttack12ChangesWithoutOriginHeaders: http.CrossOriginProtection lets a request pass that has neither header.
// Promise: console
func TestAttack12ChangesWithoutOriginHeaders(t *testing.T) {
	t.Parallel()
	refusesFrom(t, map[string][]func(*http.Request){
		"neither header": {header("Sec-Fetch-Site", ""), header("Origin", "")},
	})
}

// Those who may are let through, or the refusals above would say nothing.
func TestOwnChangesPass(t *testing.T) {
	t.Parallel()
	for what, change := range map[string][]func(*http.Request){
		"a browser":                       nil,
		"an older one":                    {header("Sec-Fetch-Site", "")},
		"a proxy that removes the origin": {header("Origin", "")},
	} {
		s := newSite(t, inWorld(t, "normal"), ops.Administrator)
		before := digest(t, s.db)
		form := administratorsChanges(t)[pausing]
		if a := s.post(form.action, filledIn(form), change...); a.status != http.StatusSeeOther || digest(t, s.db) == before {
			t.Errorf("%s: got %s, want that it changes something", what, a)
		}
	}
}

// pausing is a change that is like most.
const pausing = "do pause"

// TestAttack23OthersPlans: a plan is started by who has seen it, once.
// Promise: console
func TestAttack23OthersPlans(t *testing.T) {
	t.Parallel()
	db := inWorld(t, "normal")
	ada, eve := newSite(t, db, ops.Operator, named("ada"), patient), newSite(t, db, ops.Administrator, named("eve"), patient)
	o := planOf(ada)
	start := ada.formOf(o.ID, "start")
	for name, id := range map[string]int64{"another's": o.ID, "one that is not there": 1 << 40, "none": 0, "a negative one": -1} {
		form := filledIn(start)
		form.Set("operation", fmt.Sprint(id))
		if a := eve.post(start.action, form); a.status < 400 || a.status >= 500 {
			t.Errorf("start %s: got %s, want that it is refused", name, a)
		}
	}
	if n := count(t, db, "SELECT count(*) FROM message_operations WHERE id = ? AND state = 'planned'", o.ID); n != 1 {
		t.Error("another has started it")
	}
	if a := ada.post(start.action, filledIn(start)); a.status != http.StatusSeeOther {
		t.Fatalf("start: got %s", a)
	}
	started := testapp.Must[ops.Operation](t)(ada.session().Operations().Get(t.Context(), o.ID))
	faster := filledIn(start)
	faster.Set("rate", "100000")
	ada.post(start.action, faster)
	if again := testapp.Must[ops.Operation](t)(ada.session().Operations().Get(t.Context(),
		o.ID)); again.StartsAt != started.StartsAt || again.Rate != started.Rate || started.State != ops.Waiting {
		t.Errorf("started again: got %+v, want %+v", again, started)
	}
	// What somebody sends beside the plan does not change what it does.
	_ = testapp.Must[ops.Operation](t)(ada.session().Operations().Undo(t.Context(), "because", o.ID))
	if a := ada.post(start.action, filledIn(start)); a.status < 400 || a.status >= 500 {
		t.Errorf("started again after it was taken back: got %s, want that it is refused", a)
	}
	widened := planOf(ada)
	form := filledIn(ada.formOf(widened.ID, "start"))
	for name, value := range map[string]string{"consumer": "", "fingerprint": "", "all": "1", "do": "discard",
		"up_to": "9223372036854775807"} {
		form.Set(name, value)
	}
	ada.post(start.action, form)
	if n := count(t, db, "SELECT count(*) FROM message_operations WHERE id = ? AND kind = 'requeue' AND up_to_id = ? AND target LIKE '%consumer-03%' AND state = 'waiting'", widened.ID, widened.Preview.UpTo); n != 1 {
		t.Error("the plan was changed by the form that starts it")
	}
	if n := count(t, db, "SELECT count(*) FROM message_operations WHERE id > ?", widened.ID); n != 0 {
		t.Error("another operation was made by the form that starts one")
	}
}

// TestAttack25TablesOfOthers: the ids of another prefix are those of nothing here.
// Promise: console
func TestAttack25TablesOfOthers(t *testing.T) {
	t.Parallel()
	db := inWorld(t, "normal")
	s := newSite(t, db, ops.Administrator, onTables("mine_"))
	before := theirs(t, db)
	var pending, poisoned, schedule, operation int64
	for id, query := range map[*int64]string{&pending: "SELECT max(id) FROM consumer_messages",
		&poisoned: "SELECT max(id) FROM poisoned_messages", &schedule: "SELECT max(id) FROM scheduled_messages",
		&operation: "SELECT max(id) FROM message_operations"} {
		if err := db.NewRaw(query).Scan(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{fmt.Sprintf("message?id=%d", pending), fmt.Sprintf("message?id=%d", poisoned),
		fmt.Sprintf("schedule?id=%d", schedule), fmt.Sprintf("operation?id=%d", operation)} {
		if a := s.get(path); a.status != http.StatusNotFound || strings.Contains(a.body, secret) {
			t.Errorf("%s: got %s, want status 404", path, a)
		}
	}
	for link, d := range crawl(s, 4) {
		if strings.Contains(d.text, "consumer-0") {
			t.Errorf("%q: it shows what is another's", link)
		}
	}
	for action, f := range administratorsChanges(t) {
		if a := s.post(f.action, filledIn(f)); a.status >= 500 {
			t.Errorf("%s: got %s", action, a)
		}
	}
	if theirs(t, db) != before {
		t.Error("what is another's was changed")
	}
}

// onTables has a site work on tables of a prefix.
func onTables(prefix string) option {
	return func(s *site, c *ops.Config, _ *consoleConfig) {
		c.Registry = registryOf(s, prefix)
		if err := outbox.Migrate(s.Context(), c.DB, c.Registry.Tables()); err != nil {
			s.Fatal(err)
		}
	}
}

// theirs stands for all that is in the tables without a prefix.
func theirs(t testing.TB, db *bun.DB) string {
	t.Helper()
	return digestOf(t, db, "name NOT LIKE 'mine!_%' ESCAPE '!' AND name <> 'sqlite_sequence'")
}
