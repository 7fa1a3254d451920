package operator_test

import (
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
)

func TestErrorsForPeople(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`order "A-17": 3 fields`: "order “…”: … fields",
		"post https://hooks.example:8443/orders/1270: 503 Unavailable": "post hooks.example:…/… Unavailable",
		"smtp: 550 5.1.1 <ann@mail.example>: mailbox unavailable":      "smtp: … <…@…>: mailbox unavailable",
		"dial tcp 10.0.0.7:5432: connection refused":                   "dial tcp …: connection refused",
		"https://hooks.example/orders/1270: 503":                       "hooks.example/…",
	} {
		if got := operator.ErrorTemplate(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for name, want := range map[string]string{
		"asyncmonolith.handler_panic": "handler panic", "*errors.errorString": "", "net.OpError": "net.OpError", "": "",
	} {
		if got := operator.ErrorKind(name); got != want {
			t.Errorf("kind %q: got %q, want %q", name, got, want)
		}
	}
}
