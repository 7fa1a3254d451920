package console_test

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// identifier is a name of the library's or Go's own code.
var identifier = regexp.MustCompile(`\b(bus|ops|outbox|poison|schedule|admin|projection|eventlog|errors|fmt)\.[A-Za-z]*[A-Z][A-Za-z]+`) // immutable

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
