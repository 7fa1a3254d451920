package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// inList is a row of the list of consumed messages.
var inList = regexp.MustCompile(`<a class="id" href="message\?id=(\d+)"`)

// TestConsumedMessagesAreFiltered by each field of the form, and together.
func TestConsumedMessagesAreFiltered(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	// The world may be older than the margin of half a minute.
	s.exec(`UPDATE consumed_messages SET finished_at = finished_at - (SELECT max(finished_at) FROM consumed_messages)
		+ CAST(unixepoch('subsec') * 1000000 AS INTEGER)`)
	for query, want := range map[string]int{
		"": 40, "consumer=consumer-02": 7, "outcome=discarded": 8, "key=key-07": 1, "type=payload-type-03": 7, "trace=" + traceOf(4): 1,
		"header=tenant&value=header-05": 1, "since=" + url.QueryEscape(instant(-10*time.Minute-30*time.Second)): 11,
		"until=" + url.QueryEscape(instant(-38*time.Minute-30*time.Second)): 1, "consumer=consumer-02&outcome=discarded": 2,
		"consumer=unknown": 0, "version=v1.8-01": 20, "version=v1.8": 0,
	} {
		a := s.must("consumed?" + query)
		if got := len(inList.FindAllString(a.body, -1)); got != want {
			t.Errorf("%q: got %d messages, want %d", query, got, want)
		}
		if want == 0 && !strings.Contains(a.body, "No consumed message matches") {
			t.Errorf("%q: got %s, want that none matches", query, a)
		}
	}
	page := s.must("consumed?version=v1.8-01").body
	for _, field := range []string{`name="version" value="v1.8-01"`, `<option value="v1.8-00">`} {
		if !strings.Contains(page, field) {
			t.Errorf("filter by version: the page lacks %s", field)
		}
	}
	for _, query := range []string{"outcome=poisoned", "trace=1", "value=x", "since=yesterday"} {
		if a := s.get("consumed?" + query); a.status != http.StatusBadRequest {
			t.Errorf("%q: got %s, want status 400", query, a)
		}
	}
}

func instant(after time.Duration) string { return time.Now().Add(after).UTC().Format(time.DateTime) }

// TestAConsumedMessageIsShown with its payload if that is kept, and without contents to those who may not read them.
func TestAConsumedMessageIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	s.reads("discarded", "message?id=2000002", texts{
		[]string{"Message 2000002", "discarded", "error-02", "run 3 started", "840 ms", "payload-02", "tenant", "Repeat…", "2000001"}, nil})
	s.reads("without a payload", "message?id=2000003", texts{[]string{"The payload was not kept."}, []string{"payload-03"}})
	s.as(ops.Viewer)
	s.reads("to a viewer", "message?id=2000002", texts{[]string{"error texts are hidden"}, []string{"payload-02", secret, "Repeat…"}})
	s.reads("the list, to a viewer", "consumed", texts{[]string{"discarded"}, []string{secret, "Repeat…", "Header"}})
	if a := s.get("consumed?header=tenant&value=header-05"); a.status != http.StatusForbidden {
		t.Errorf("a viewer filters by a header: got %s, want status 403", a)
	}
	s.allow = func(_ ops.Action, consumer string) bool { return consumer != "consumer-02" }
	if a := s.get("message?id=2000002"); a.status != http.StatusForbidden {
		t.Errorf("a message of a consumer that is not allowed: got %s, want status 403", a)
	}
}

// TestRepeatingConsumedMessages: a page says what it touches, the audit has it, and all run again or none.
func TestRepeatingConsumedMessages(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator, named("ada"))
	pending := func() int { return count(t, s.db, "SELECT count(*) FROM consumer_messages") }
	before := pending()
	form := func(ids ...int) url.Values {
		v := url.Values{"do": {"repeat"}, "reason": {"the mail was lost"}, "back": {"consumed?outcome=done"}}
		for _, id := range ids {
			v.Add("id", fmt.Sprint(id))
		}
		return v
	}
	s.reads("the question", "confirm?"+form(2000001, 2000002, 9).Encode(), texts{
		[]string{"Repeat 2 messages?", "consumer-01", "consumer-02", "1 message no longer exists", "No longer kept"}, nil})
	if a := s.post("do", form(2000001, 2000003)); a.status != http.StatusConflict || !strings.Contains(a.body, "was not kept") {
		t.Errorf("one without a payload: got %s, want status 409", a)
	}
	if n := pending(); n != before {
		t.Fatalf("got %d messages more, want none or all", n-before)
	}
	if a := s.post("do", form(2000001, 2000002)); a.status != http.StatusSeeOther || a.header.Get("Location") != "consumed?outcome=done" {
		t.Fatalf("got %s, want the list where they were chosen", a)
	}
	if n := pending(); n != before+2 {
		t.Errorf("got %d messages more, want 2", n-before)
	}
	s.reads("the audit", "operations", texts{[]string{"repeat", "the mail was lost", "ada"}, nil})
	s.as(ops.Viewer)
	if a := s.post("do", form(2000001)); a.status != http.StatusForbidden {
		t.Errorf("a viewer: got %s, want status 403", a)
	}
	s.as(ops.Operator)
	s.allow = func(a ops.Action, consumer string) bool { return a != ops.Repeat || consumer != "consumer-02" }
	for _, a := range []answer{s.post("do", form(2000002)), s.get("confirm?" + form(2000002).Encode())} {
		if a.status != http.StatusForbidden || pending() != before+2 {
			t.Errorf("of a consumer that is not allowed: got %s, want status 403", a)
		}
	}
}

// TestAKeptPayloadIsShownAsItIs: the page has the size of a whole payload, and says whether all of it is shown.
func TestAKeptPayloadIsShownAsItIs(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Operator)
	const beginning = "Only the beginning is shown."
	for payload, want := range map[string]texts{
		"x" + strings.Repeat("é", 50<<10): {[]string{"Payload <small>100.0 KiB", "éé", beginning}, []string{"binary", "�"}},
		strings.Repeat("y", 62<<10):       {[]string{"Payload <small>62.0 KiB", "yy"}, []string{beginning}},
	} {
		s.exec("UPDATE consumed_messages SET payload = ? WHERE id = 2000002", payload)
		page := s.must("message?id=2000002").body
		for _, text := range want.says {
			if !strings.Contains(page, text) {
				t.Errorf("%d bytes: want %q", len(payload), text)
			}
		}
		for _, text := range want.not {
			if strings.Contains(page, text) {
				t.Errorf("%d bytes: got %q", len(payload), text)
			}
		}
	}
}
