package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
)

// TestWhatIsKeptIsWhatIsDeleted: a discard of an export deletes what is in the file, and nothing else.
func TestWhatIsKeptIsWhatIsDeleted(t *testing.T) {
	eachAsIs(t, func(s site) {
		a := filled(s)
		write := func(text string) string {
			s.Helper()
			path := filepath.Join(s.TempDir(), "kept.ndjson")
			testapp.OK(s, os.WriteFile(path, []byte(text), 0o600))
			return path
		}
		discard := func(code int, path string, more ...string) answer {
			s.Helper()
			return s.must(code, append([]string{"discard", "--exported", path}, more...)...)
		}
		yes := []string{"--yes", "--reason", "kept elsewhere"}
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'other' WHERE id = 1") // it fails later, with a lower id
		kept := s.must(0, "poisoned", "export", "--consumer", "mail", "--show-payloads", "--reason", "to keep").out
		path := write(kept)
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'mail' WHERE id = 1")
		lines := strings.SplitAfter(kept, "\n")
		for what, text := range map[string]string{
			"cut short":       kept[:len(kept)-20],
			"ended early":     kept + `{"v":1,"error":"the export ended early: it is not whole"}` + "\n",
			"without content": s.must(0, "poisoned", "export", "--consumer", "mail", "--reason", "to keep").out,
			"no export":       "hello",
		} {
			if got := discard(2, write(text), yes...); a.Count("SELECT count(*) FROM poisoned_messages") != 4 {
				s.Errorf("%s: got %+v, want it refused", what, got)
			}
		}
		discard(2, path, append(yes, "--consumer", "mail")...)
		discard(2, filepath.Join(s.TempDir(), "none"), yes...)
		elsewhere := strings.ReplaceAll(kept, `"message_id":"0`, `"message_id":"1`)
		discard(3, write(elsewhere), yes...) // of another database
		if got := discard(4, path); !strings.Contains(got.out, "2 messages would be discarded, of 2 in the file.") ||
			a.Count("SELECT count(*) FROM poisoned_messages") != 4 {
			s.Errorf("unasked: got %+v", got)
		}
		if got := discard(0, write(lines[0]), yes...); !strings.Contains(got.out, "1 message discarded.") {
			s.Errorf("one: got %+v", got)
		}
		if got := discard(5, path, append(yes, "--json")...); !strings.Contains(got.out, `"discarded":1,"missing":1`) {
			s.Errorf("the rest: got %+v", got)
		}
		if left := a.Count("SELECT count(*) FROM poisoned_messages WHERE id IN (1, 4)"); left != 2 ||
			a.Count("SELECT count(*) FROM poisoned_messages") != 2 {
			s.Errorf("got %d left, want what was not kept: that of another consumer, and the one that failed later", left)
		}
		discard(3, path, yes...)
	})
}
