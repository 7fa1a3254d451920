package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestUnchangedFragments are not sent again, also behind a proxy that compresses them, whose tags are weak.
func TestUnchangedFragments(t *testing.T) {
	t.Parallel()
	s := newSite(t, inWorld(t, "empty"), ops.Viewer)
	fragment := header("X-Asyncmonolith-Fragment", "main")
	tag := s.get("find", fragment).header.Get("ETag")
	for sent, want := range map[string]int{tag: http.StatusNotModified, "W/" + tag: http.StatusNotModified,
		`"another", ` + tag: http.StatusNotModified, `"another"`: http.StatusOK, "": http.StatusOK} {
		got := s.get("find", fragment, header("If-None-Match", sent))
		if got.status != want || strings.Contains(got.body, "<") != (want == http.StatusOK) {
			t.Errorf("If-None-Match %q: got %s, want status %d", sent, got, want)
		}
	}
}
