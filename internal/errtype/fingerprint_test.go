package errtype_test

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errtype"
)

func TestShape(t *testing.T) {
	for text, want := range map[string]string{
		"dial tcp 10.0.0.7:5432: connect: connection refused": "dial tcp #.#.#.#:#: connect: connection refused",
		`order "A-17" is unknown`:                             "order “…” is unknown",
		"order 'A-17' is unknown":                             "order “…” is unknown",
		"it can't be, and it won't be":                        "it can't be, and it won't be",
		"user 0190b3c4-1111-7abc-8def-001122334455 is gone":   "user # is gone",
		"blob deadbeefcafe42 is gone":                         "blob # is gone",
		"mail to ann.b+c@mail.example.org bounced":            "mail to …@… bounced",
		"get https://api.example.org:8443/v1/orders/17?key=s": "get //api.example.org:#/…",
		"first line\nsecond line 17":                          "first line",
		"":                                                    "",
		strings.Repeat("ä", 200):                              strings.Repeat("ä", 150),
	} {
		if got := errtype.Shape(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

type declined struct{ order int }

func (d declined) Error() string { return fmt.Sprintf("card of order %d declined", d.order) }

func panicOf(f func()) (err error) {
	defer func() { err = &bus.PanicError{Value: recover(), Stack: debug.Stack()} }()
	f()
	return nil
}

func boom()      { panic("boom") }
func otherBoom() { panic("boom") }

func TestFingerprint(t *testing.T) {
	same := func(a, b error) {
		t.Helper()
		if x, y := errtype.Fingerprint(a), errtype.Fingerprint(b); x != y || len(x) != 17 || x[0] != '1' {
			t.Errorf("%v, %v: got %q and %q, want the same", a, b, x, y)
		}
	}
	differ := func(a, b error) {
		t.Helper()
		if x, y := errtype.Fingerprint(a), errtype.Fingerprint(b); x == y {
			t.Errorf("%v, %v: got %q for both", a, b, x)
		}
	}
	same(declined{1}, declined{2})
	same(fmt.Errorf("charge: %w", declined{1}), fmt.Errorf("charge: %w", declined{20}))
	differ(declined{1}, errors.New("card of order 1 declined"))
	differ(declined{1}, fmt.Errorf("charge: %w", declined{1}))
	same(panicOf(boom), panicOf(boom))
	differ(panicOf(boom), panicOf(otherBoom))
}

func FuzzShape(f *testing.F) {
	f.Add(`get "https://x/1?y" of 'a' 17`)
	f.Fuzz(func(t *testing.T, text string) {
		if got := errtype.Shape(text); strings.ContainsAny(got, "0123456789\n") {
			t.Errorf("%q: got %q, which has digits or lines", text, got)
		}
	})
}
