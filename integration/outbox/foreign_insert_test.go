package outbox_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAMessageOfAnotherLanguageIsConsumed runs the statement of the recipe as it stands there.
//
// Promise: foreign-insert
func TestAMessageOfAnotherLanguageIsConsumed(t *testing.T) {
	t.Parallel()
	page := string(testapp.Must[[]byte](t)(os.ReadFile("../../docs/recipes.md")))
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		found := regexp.MustCompile("(?s)<!-- " + db.Dialect().Name().String() + " -->\n```sql\n(.*?)```").FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("docs/recipes.md: no statement for %s", db.Dialect().Name())
		}
		consumed := make(map[string]string)
		plain := func(_ context.Context, o order) error { consumed["mail"] = o.ID; return nil }
		tx := func(_ context.Context, _ bun.Tx, o order) error { consumed["stock"] = o.ID; return nil }
		a := testapp.New(t, db, bus.Consume("mail", plain), outbox.ConsumeTx("stock", tx))
		for _, consumer := range []string{"mail", "stock"} {
			a.Exec(strings.NewReplacer(":id", "'"+uuid.NewString()+"'", ":consumer", "'"+consumer+"'", ":type", "'order.placed'", ":payload", `'{"id":"17"}'`).Replace(found[1]))
		}
		if n := steps(t.Context(), a, newProcessor(a, testapp.Fast())); n != 2 || consumed["mail"] != "17" || consumed["stock"] != "17" {
			t.Errorf("got %d runs with %v, want both consumers to get order 17", n, consumed)
		}
	})
}
