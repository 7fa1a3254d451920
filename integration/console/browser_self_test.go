package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTheBrowserComplains: what the tests of pages look for, they find on one that has it all.
func TestTheBrowserComplains(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/bad.js" {
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `console.error("it went wrong"); document.body.innerHTML = "x"; throw new Error("and worse")`)
			return
		}
		w.Header().Set("Content-Security-Policy", "default-src 'self'; require-trusted-types-for 'script'")
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<html><body style="color: red"><img src="/missing.png"><p style="color: #999">grey</p><table width=2000><tr><td>wide</td></tr></table><script src="/bad.js"></script><script>alert(1)</script></body></html>`)
	}))
	t.Cleanup(server.Close)
	b := newTab(t)
	b.mustVisit(server.URL + "/")
	got := strings.Join(append(b.complaints(), b.violations()...), "\n")
	for _, want := range []string{"it went wrong", "exception", "CSP report: style-src", "CSP report: script-src", "TrustedHTML",
		"axe: image-alt", "axe: html-has-lang", "axe: document-title", "pixels wider"} {
		if !strings.Contains(got, want) {
			t.Errorf("got no %q in:\n%s", want, got)
		}
	}
	b.complaints()
}
