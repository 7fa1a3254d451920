package console_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/console"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// harmless sees that nothing on a page is markup that somebody's text has brought.
func harmless(t *testing.T, path string, a answer) *document {
	t.Helper()
	d := parse(t, path, a.body)
	if len(d.foreign) > 0 {
		t.Errorf("%q: got %v, which no page has of itself", path, d.foreign)
	}
	for name, values := range a.header {
		if name != "Location" && strings.Contains(strings.Join(values, " "), "evil.example") {
			t.Errorf("%q: got header %s %v", path, name, values)
		}
	}
	return d
}

// asFragment asks for the middle of a page, as the script does.
func asFragment() func(*http.Request) { return header("X-Asyncmonolith-Fragment", "1") }

// TestAttack14TextsAsMarkup: whatever texts messages and programs have, on all pages.
// Promise: console
func TestAttack14TextsAsMarkup(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "hostile"), ops.Administrator)
	seen := make(map[string]bool)
	for path := range crawl(s, 3) {
		d := harmless(t, path, s.must(path))
		harmless(t, path, s.get(path, asFragment()))
		for _, text := range hostile {
			if strings.Contains(d.text, strings.Join(strings.Fields(text), " ")) {
				seen[text] = true
			}
		}
	}
	for _, text := range hostile {
		if !seen[text] {
			t.Errorf("%q: no page shows it: this test would not notice what it does", text)
		}
	}
}

// TestAttack15TracesAsScripts: the id of a trace becomes a part of an address.
// Promise: console
func TestAttack15TracesAsScripts(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	ids := []string{"javascript:alert(1)", "javascript%3aalert(1)__________", "/../../../../evil.example/_______",
		"@evil.example/__________________", `"onmouseover="pwned=1"__________`, "?next=//evil.example____________", traceOf(1)[:31] + "/"}
	for i, id := range ids {
		header := map[string]string{"traceparent": "00-" + id + "-00000000000000ab-01"}
		testapp.Must[any](t)(s.db.NewRaw("UPDATE consumer_messages SET headers = ? WHERE id = ?", seeder{t: t}.json(header),
			100+i).Exec(t.Context()))
		d := harmless(t, id, s.must(fmt.Sprintf("message?id=%d", 100+i)))
		for _, address := range d.away {
			t.Errorf("trace %q: got a link to %s, want none", id, address)
		}
	}
	d := parse(t, "", s.must("message?id=2").body)
	if want := "https://traces.example/" + traceOf(1); !slices.Contains(d.away, want) {
		t.Errorf("a trace as it should be: got links to %v, want %s", d.away, want)
	}
	for _, address := range []string{"javascript:alert({trace})", "data:text/html,{trace}", "//traces.example/{trace}", "{trace}",
		"https://traces.example/"} {
		if _, err := console.New(s.service, console.Config{Authorize: s.authorize, TraceURL: address}); err == nil ||
			!strings.Contains(err.Error(), "TraceURL") {
			t.Errorf("TraceURL %q: got error %v, want one", address, err)
		}
	}
}

// questions are pages with all parameters that links and forms give them, each with a value that they have there.
func questions(pages map[string]*document) map[string]url.Values {
	found := make(map[string]url.Values)
	note := func(address string, more url.Values) {
		path, query, _ := strings.Cut(strings.TrimPrefix(address, "./"), "?")
		values, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if found[path] == nil {
			found[path] = url.Values{}
		}
		for _, some := range []url.Values{values, more} {
			for name, texts := range some {
				found[path][name] = texts[:1]
			}
		}
	}
	for _, d := range pages {
		for _, l := range d.links {
			note(l, nil)
		}
		for _, f := range d.forms {
			if f.method == http.MethodGet {
				note(f.action, f.fields)
			}
		}
	}
	return found
}

// askEach asks for each page with each parameter in turn as it should not be: with so many of the values, or with all of
// them where all is looked at.
func askEach(t *testing.T, s *site, few int, values []string, check func(path string, a answer)) {
	t.Helper()
	asked := questions(crawl(s, 4))
	if len(asked) < 8 {
		t.Fatalf("got %d pages, want more: %v", len(asked), asked)
	}
	turn := 0
	for _, path := range slices.Sorted(maps.Keys(asked)) {
		query := asked[path]
		for _, name := range append(slices.Sorted(maps.Keys(query)), "id", "after", "back", "") {
			for _, value := range some(values, few, &turn) {
				changed := maps.Clone(query)
				if name == "" {
					name = value
				}
				changed.Set(name, value)
				address := path + "?" + changed.Encode()
				check(address, s.get(address))
			}
		}
	}
}

// some are the next few values, or all of them where all is looked at.
func some(values []string, few int, turn *int) (chosen []string) {
	if *all {
		return values
	}
	for range few {
		chosen = append(chosen, values[*turn%len(values)])
		*turn++
	}
	return chosen
}

// Promise: console
func TestAttack16ParametersAsMarkup(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	values := []string{
		"x\" onfocus=\"pwned=1\" y=' onfocus=pwned=1 ' z=`${pwned=1}`\"></textarea></title><script>pwned=1</script><img src=x onerror=pwned=1>", // out of whatever it stands in
		"javascript:pwned=1", "//evil.example/", "a\r\nSet-Cookie: evil.example=1",
	}
	askEach(t, s, len(values), values, func(path string, a answer) {
		if a.status >= 500 {
			t.Errorf("%s: got %s", path, a)
		}
		harmless(t, path, a)
	})
}

// secretive hides by where something stands: a header, payloads, and what errors say.
func secretive(_ *site, c *ops.Config, _ *consoleConfig) {
	c.Redact = func(_ context.Context, c ops.Content) ops.Content {
		delete(c.Headers, "token")
		c.Payload = []byte(`{"hidden": true}`)
		for i := range c.Errors {
			c.Errors[i] = "hidden"
		}
		return c
	}
}

// TestAttack22WhatIsHidden: contents that are not to be shown are on no page, in no form, tag, export or log, and
// nobody can guess them by looking for them.
// Promise: console
func TestAttack22WhatIsHidden(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]option{"all": hidden, "parts": secretive} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, inWorld(t, "normal"), ops.Administrator, option)
			pages := crawl(s, 4)
			for path := range pages {
				for _, a := range []answer{s.get(path), s.get(path, asFragment())} {
					if said := fmt.Sprint(a.header, a.body); strings.Contains(said, secret) || strings.Contains(said, "%22"+secret) {
						t.Errorf("%q shows what is hidden", path)
					}
				}
			}
			for action, f := range changes(pages) {
				if strings.Contains(fmt.Sprint(f.fields), secret) {
					t.Errorf("%s: its form has what is hidden", action)
				}
				if a := s.post(f.action, filledIn(f)); strings.Contains(fmt.Sprint(a.header, a.body), secret) {
					t.Errorf("%s: its answer has what is hidden", action)
				}
			}
			eve := newSite(t, s.db, ops.Administrator, option, named("eve")) // whose name is the same on both pages
			eve.must("")                                                     // the menu has counts from then on
			for _, guess := range guesses() {
				right, wrong := eve.get(guess(secret)), eve.get(guess(unlike))
				if right.status != wrong.status || right.body != strings.ReplaceAll(wrong.body, unlike[:4], secret[:4]) {
					t.Errorf("%s: got %s and %s: a viewer can guess what is hidden", guess("…"), right, wrong)
				}
			}
			if strings.Contains(s.log.String(), secret) {
				t.Error("the log has what is hidden")
			}
		})
	}
	// It is shown where nothing is hidden, or the test would find nothing anywhere, and it can be found.
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	shown := 0
	for _, d := range crawl(s, 4) {
		if strings.Contains(d.text, secret) {
			shown++
		}
	}
	if shown < 4 {
		t.Errorf("with ShowAll %d pages show the content, want more", shown)
	}
	for _, guess := range guesses() {
		if right, wrong := s.must(guess(secret)), s.must(guess(unlike)); len(parse(t, "", right.body).links) <= len(parse(t, "",
			wrong.body).links) {
			t.Errorf("%s: it finds nothing where nothing is hidden", guess("…"))
		}
	}
	s.as(ops.Viewer) // who sees no content anywhere
	for path := range crawl(s, 4) {
		if a := s.get(path); strings.Contains(fmt.Sprint(a.header, a.body), secret) {
			t.Errorf("%q shows a content to a viewer", path)
		}
	}
}

// unlike is what nothing has, as long as the secret.
const unlike = "serame-4711"

// guesses are addresses that look for a text in what messages carry.
func guesses() []func(text string) string {
	return []func(string) string{
		func(text string) string {
			return "find?" + url.Values{"what": {"header"}, "header": {"token"}, "value": {text}}.Encode()
		},
		func(text string) string { return "group?" + url.Values{"error": {text}}.Encode() },
		func(text string) string {
			return "group?" + url.Values{"consumer": {"consumer-01"}, "error": {text[:len(text)-1]}}.Encode()
		},
	}
}

// TestAttack24Wildcards: what somebody looks for is text, and no pattern or piece of SQL, on each database.
// Promise: console
func TestAttack24Wildcards(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, db *bun.DB) {
		s := newSite(t, db, ops.Operator)
		errors := []string{"100% wrong", "100 of wrong", "under_score", "underXscore", `it's "quoted"`, `back\slash`, "[a-z]", "plain",
			"semi;colon -- x"}
		for i, text := range errors {
			testapp.Must[any](t)(db.NewRaw("UPDATE poisoned_messages SET reason = ?, errors = '[]' WHERE id = ?", text,
				1_000_000+i).Exec(t.Context()))
		}
		found := func(query url.Values) int {
			d := parse(t, "group", s.must("group?"+query.Encode()).body)
			ids := make(map[string]bool)
			for _, l := range d.links {
				if id, is := strings.CutPrefix(l, "message?id="); is {
					ids[id] = true
				}
			}
			return len(ids)
		}
		for text, want := range map[string]int{"100%": 1, "%wrong": 0, "0%w": 0, "under_s": 1, "_": 1, `'s "q`: 1, "it's": 1, `k\s`: 1,
			`k\\s`: 0, `k_s`: 0, `[a-z]`: 1, "lai": 1, "pl_in": 0, "p%n": 0, "semi;colon -- x": 1, "' OR '1'='1": 0, "') OR 1=1 --": 0, "?": 0, "?0": 0} {
			got := found(url.Values{"error": {text}, "consumer": {""}})
			if want == 0 && got != 0 || want == 1 && got != 1 {
				t.Errorf("error %q: got %d messages, want %d", text, got, want)
			}
		}
		for _, name := range []string{"consumer", "type", "fingerprint"} {
			for _, text := range []string{"%", "_", "consumer-0_", "consumer%", "payload-type-0_", "1%", "' OR '1'='1", `" OR ""="`,
				"consumer-01'--", `consumer-01\`, "consumer-01 "} {
				if got := found(url.Values{name: {text}}); got != 0 {
					t.Errorf("%s %q: got %d messages, want none", name, text, got)
				}
			}
		}
		for _, name := range []string{"consumer", "type", "insert"} {
			for _, text := range []string{"%", "insert-0_", "insert%", "consumer-0_", "payload%", "' OR '1'='1", "insert-02'--"} {
				a := s.must("messages?" + url.Values{name: {text}}.Encode())
				if strings.Contains(a.body, "message?id=") {
					t.Errorf("messages of %s %q: got some, want none", name, text)
				}
			}
		}
		if a := s.must("messages?insert=insert-02"); !strings.Contains(a.body, "message?id=") {
			t.Errorf("messages by their insert id: got none")
		}
		for _, text := range []string{"%", "sesame%", "sesame-471_", `sesame"`, `sesame-4711","`} {
			if a := s.must("find?" + url.Values{"what": {"header"}, "header": {"token"}, "value": {text}}.Encode()); strings.Contains(a.body,
				"message?id=") {
				t.Errorf("header %q: got some, want none", text)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); run(t, inWorld(t, "normal")) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); run(t, seeded(t, testdb.Postgres(t))) })
	t.Run("mariadb", func(t *testing.T) { t.Parallel(); run(t, seeded(t, testdb.MariaDB(t))) })
}

// seeded is a database with the normal world.
func seeded(t *testing.T, db *bun.DB) *bun.DB {
	t.Helper()
	seed(t, migrated(t, db), worldOf(t, "normal"))
	return db
}
