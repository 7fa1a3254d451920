package show_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/cmd/asyncmonolith/internal/show"
)

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain, ünï 漢": "plain, ünï 漢", "\x1b[31m": `\u001b[31m`, "a\nb\tc\r": `a\nb\tc\u000d`, "\u202eabc": `\u202eabc`, "\xff": `\xff`, "\u009b": `\u009b`, "\u200b": `\u200b`, "\U000e0001": `\ue0001`,
	} {
		if got := show.Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value any
		want  string
	}{
		{map[string]int{"a": 1}, `{"v":1,"a":1}`}, {struct{}{}, `{"v":1}`}, {[]int{1}, `{"v":1,"value":[1]}`},
		{map[string]string{"a": "\x1b\u202e\u009b\U000e0001"}, `{"v":1,"a":"\u001b\u202e\u009b\udb40\udc01"}`},
	} {
		var b bytes.Buffer
		if err := show.JSON(&b, test.value); err != nil || b.String() != test.want+"\n" || !json.Valid(b.Bytes()) {
			t.Errorf("%v: got %q, %v, want %q", test.value, b.String(), err, test.want)
		}
	}
}

func TestAge(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]string{0: "", 1500 * time.Microsecond: "2ms", 12340 * time.Millisecond: "12.3s",
		2 * time.Minute: "2m", 90 * time.Second: "1m30s", 3 * time.Hour: "3h", 25*time.Hour + time.Minute: "25h1m", 50 * time.Hour: "2d2h"} {
		if got := show.Age(age); got != want {
			t.Errorf("%s: got %q, want %q", age, got, want)
		}
	}
}
