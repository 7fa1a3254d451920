package console_test

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestFindForgetsNoMatch: a search in parts goes on by itself only as long as the next page lists all that were found, and
// says how many it does not list.
func TestFindForgetsNoMatch(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "normal"), ops.Administrator)
	s.exec(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1300)
		INSERT INTO consumer_messages (message_id, consumer_type, payload_type, payload, headers, created_at, available_after)
		SELECT printf('00000000-0000-7000-8000-%012d', i), 'mail', 'order.placed', '{}', '{"lot":"7"}', (SELECT MAX(created_at) FROM consumer_messages),
			(SELECT MAX(available_after) FROM consumer_messages) FROM n`)
	next := regexp.MustCompile(`href="(find[^"]*after=[^"]*)"( data-go-on)?`)
	first := s.must("find?what=header&header=lot&value=7")
	link := next.FindStringSubmatch(first.body)
	if n := strings.Count(first.body, `scope="row"`); n != 1000 || link == nil {
		t.Fatalf("got %d matches and link %q, want the first 1,000 and the next part", n, link)
	}
	if link[2] != "" {
		t.Error("the search goes on by itself, want it to wait: the next page lists 50 of the matches only")
	}
	second := s.must(html.UnescapeString(link[1]))
	if n := strings.Count(second.body, `scope="row"`); n != 300 || !strings.Contains(second.body, "and 950 more") {
		t.Errorf("got %d matches and %s, want 300, and that 950 more were found earlier", n, second)
	}
	for link = next.FindStringSubmatch(second.body); link != nil; link = next.FindStringSubmatch(second.body) {
		second = s.must(html.UnescapeString(link[1]))
	}
	if !strings.Contains(second.body, "and 1,250 more") && !strings.Contains(second.body, "and 950 more") {
		t.Errorf("at the end: got %s, want how many it does not list", second)
	}
}
