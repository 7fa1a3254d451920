package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Whatever text an error has, and whatever list is stored already, what is
// written is a list of at most ten attempts that a database can store, and the
// last of them is this one.
func FuzzErrorText(f *testing.F) {
	for _, s := range []string{"", "plain", "\x00", "a\x00b\xffc", "\xed\xa0\x80", `"quotes"`, "\u2028", strings.Repeat("é", 5000),
		"\xf0\x9f\x98\x80", strings.Repeat("\xf0", 9000)} {
		f.Add(s, s, int64(1))
	}
	f.Add("[]", "x", int64(0))
	f.Add(`[{"attempt":1,"at":"2031-05-06T07:08:09Z","error":"x"}]`, "y", int64(-1<<62))
	f.Fuzz(func(t *testing.T, list, text string, unix int64) {
		const maxText = 8 << 10
		clean := errorlog.Clean(text, maxText)
		if !storable(clean) || len(clean) > maxText || errorlog.Clean(clean, maxText) != clean {
			t.Fatalf("clean text of %q: got %q, want text that can be stored, and stays", text, clean)
		}
		if storable(text) && len(text) <= maxText && clean != text {
			t.Fatalf("clean text of %q: got %q, want it untouched", text, clean)
		}
		at := time.Unix(unix%(1<<34), 0).UTC()
		got := errorlog.Append(list, errorlog.Attempt{Attempt: 3, At: at, Error: text})
		if got == "" && (at.Year() < 0 || at.Year() > 9999) {
			return // an instant that JSON has no text for
		}
		if !storable(got) {
			t.Fatalf("list: got %q, want text that can be stored", got)
		}
		var attempts []errorlog.Attempt
		if err := json.Unmarshal([]byte(got), &attempts); err != nil || len(attempts) == 0 || len(attempts) > 10 {
			t.Fatalf("list: got %d attempts and error %v in %q, want 1 to 10", len(attempts), err, got)
		}
		if last := attempts[len(attempts)-1]; last.Error != clean || last.Attempt != 3 || !last.At.Equal(at) {
			t.Fatalf("last attempt: got %+v, want the text %q at %s", last, clean, at)
		}
	})
}

func storable(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
