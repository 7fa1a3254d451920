package ops

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Internal: the bound of a call of Redact is tested in virtual time, which a database does not have.

// TestARedactThatHangsHidesContents: neither one that ignores its context nor one that returns late makes each row of a page wait,
// and contents are shown again soon after.
func TestARedactThatHangsHidesContents(t *testing.T) {
	t.Parallel()
	for name, ignores := range map[string]bool{"it ignores its context": true, "it returns late": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				release := make(chan struct{})
				defer close(release)
				var calls atomic.Int32
				var recovered atomic.Bool
				d := away(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil)), Redact: func(ctx context.Context, c Content) Content {
					calls.Add(1)
					if recovered.Load() {
						return c
					}
					if ignores {
						<-release
					} else {
						<-ctx.Done()
					}
					return c
				}})
				s := d.As(Principal{Name: "ada", Role: Operator})
				begun := time.Now()
				for range 100 {
					if seen, shown := s.shown(t.Context(), Content{Consumer: "c", Errors: []string{"secret"}}); shown || len(seen.Errors) != 0 {
						t.Fatalf("shown: got %t and %q, want it hidden", shown, seen.Errors)
					}
				}
				if took := time.Since(begun); calls.Load() != 1 || took > 5*time.Second {
					t.Errorf("100 rows: got %d calls in %s, want one, in 5 s at most", calls.Load(), took)
				}
				recovered.Store(true)
				<-time.After(hideTime)
				if text := s.text(t.Context(), Content{}, "secret"); text != "secret" {
					t.Errorf("text after %s: got %q, want it shown", hideTime, text)
				}
				if got := log.String(); strings.Count(got, "Config.Redact") != 1 || strings.Contains(got, "secret") {
					t.Errorf("log: got %q, want one warning without the secret", got)
				}
			})
		})
	}
}
