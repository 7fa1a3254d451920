package console_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestConfirmingMany: what is chosen is looked at together, however many messages these are, and what is gone is left out.
func TestConfirmingMany(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.ProduceMany(99)
		var statements atomic.Int64
		hooked := db.WithQueryHook(testapp.QueryHook(func(context.Context, string) { statements.Add(1) }))
		s := newSite(t, hooked, ops.Administrator)
		var ids strings.Builder
		for _, m := range a.Pending() {
			fmt.Fprintf(&ids, "&id=%d", m.ID)
		}
		page := s.must("confirm?do=cancel" + ids.String() + "&id=4711")
		if n := statements.Load(); n > 10 {
			t.Errorf("got %d statements, want 10 at most", n)
		}
		if n := strings.Count(page.body, `<input type="hidden" name="id"`); n != 99 ||
			!strings.Contains(page.body, "Cancel 99 messages?") || !strings.Contains(page.body, "1 message is there no more, and left out: 4711.") {
			t.Errorf("got %d messages to confirm in %s, want 99, and that one is gone", n, page)
		}
	})
}
