package console_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestLongExports: an export may take longer than the server's time for an answer.
func TestLongExports(t *testing.T) {
	t.Parallel()
	const enough = 300 * time.Millisecond
	slow := func(_ *site, c *ops.Config, _ *consoleConfig) {
		c.Redact = func(_ context.Context, content ops.Content) ops.Content {
			<-time.After(enough / 10) // of 48 messages
			return content
		}
	}
	s := newSite(t, inWorld(t, "normal"), ops.Administrator, slow)
	server := httptest.NewUnstartedServer(s.console)
	server.Config.WriteTimeout = enough
	server.Start()
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+prefix+"export",
		strings.NewReader(url.Values{"reason": {"to look at"}}.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	answer, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	lines, err := io.ReadAll(answer.Body)
	if want := count(t, s.db, "SELECT count(*) FROM poisoned_messages"); err != nil || strings.Count(string(lines), "\n") != want ||
		strings.Contains(string(lines), "not whole") {
		t.Errorf("got %d lines, %v, want %d", strings.Count(string(lines), "\n"), err, want)
	}
}

// TestABegunChangeIsClosed: whoever sees that a change stays started can end that.
func TestABegunChangeIsClosed(t *testing.T) {
	t.Parallel()
	s := newSite(t, migrated(t, inWorld(t, "empty")), ops.Administrator)
	s.exec("INSERT INTO message_operations (kind, actor, reason, target, preview, state, rate, canary, canaries, after_id, up_to_id, changed, left_alone, note, created_at)"+
		" VALUES ('export', 'ada', 'why', '{}', '', 'started', 0, 0, '', 0, 0, 0, 0, '', ?)", s.ago(time.Hour))
	id := strconv.Itoa(count(t, s.db, "SELECT MAX(id) FROM message_operations"))
	if page := s.must("operation?id=" + id).body; !strings.Contains(page, "Its outcome is not known") || !strings.Contains(page, "Stop…") {
		t.Errorf("got %s, want it to be closed from there", page)
	}
	s.post("do", url.Values{"do": {"stop"}, "operation": {id}, "reason": {"looked"}})
	if n := count(t, s.db, "SELECT count(*) FROM message_operations WHERE state = 'stopped' AND id = "+id); n != 1 {
		t.Error("want it closed")
	}
}
