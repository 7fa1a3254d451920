package engine

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Internal, since only the absence of log lines shows from outside.
func TestWarningsAreLoggedOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		n := rateLimitedLog{logger: slog.New(slog.NewTextHandler(&log, nil)), text: "claims recovered"}
		lines := func() []string { return strings.Split(strings.TrimSpace(log.String()), "\n") }
		n.add(1, 5)
		<-time.After(999 * time.Millisecond)
		n.add(2, 6)
		n.add(3, 7)
		n.flush(time.Second)
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], `msg="claims recovered" claims=1 messages=5`) {
			t.Errorf("within a second: got %q, want one line with the first", got)
		}
		<-time.After(time.Millisecond)
		n.flush(time.Second)
		n.flush(0)
		if got := lines(); len(got) != 2 || !strings.Contains(got[1], "claims=5 messages=13") {
			t.Errorf("a second later: got %q, want one line more with the rest", got)
		}
		n.add(1, 0)
		n.flush(0)
		if got := lines(); len(got) != 3 || strings.Contains(got[2], "messages") {
			t.Errorf("at the end: got %q, want one line more, of claims alone", got)
		}
	})
}
