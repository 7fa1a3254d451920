package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestTheConsoleIsBehindTheLogin: with the password there are pages, without one there is nothing.
func TestTheConsoleIsBehindTheLogin(t *testing.T) {
	t.Parallel()
	s, kit := newTestShop(t)
	c := newService()
	c.DB, c.Registry = s.db, kit.Registry
	service, err := ops.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(set settings, path, name, password string) int {
		pages, err := newConsole(set, service)
		if err != nil {
			t.Fatal(err)
		}
		server := newServer(s.db, nil, nil, pages, set, noop.NewTracerProvider(), slog.New(slog.DiscardHandler))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		if name+password != "" {
			r.SetBasicAuth(name, password)
		}
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, r)
		return w.Code
	}
	const page = "/asyncmonolith/messages"
	for _, test := range []struct {
		what           string
		set            settings
		name, password string
		want           int
	}{
		{"the password", settings{password: "open"}, "ada", "open", http.StatusOK},
		{"no password", settings{password: "open"}, "", "", http.StatusUnauthorized},
		{"a wrong one", settings{password: "open"}, "ada", "opem", http.StatusUnauthorized},
		{"no name", settings{password: "open"}, "", "open", http.StatusUnauthorized},
		{"none is configured", settings{}, "ada", "", http.StatusNotFound},
	} {
		if got := ask(test.set, page, test.name, test.password); got != test.want {
			t.Errorf("%s: got status %d, want %d", test.what, got, test.want)
		}
	}
	if n := len(bustest.Payloads[OrderPlaced](t, kit)); n != 0 {
		t.Errorf("got %d orders, want none", n)
	}
}
