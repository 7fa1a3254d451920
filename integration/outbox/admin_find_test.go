package outbox_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// TestAdminFinds: messages stand at the beginning, in the middle and at the end of more than two
// parts, with ids that have gaps.
func TestAdminFinds(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"))
		client, ctx := a.Admin(), t.Context()
		const trace = "0af7651916cd43dd8448eb211c80319c"
		var ids []uuid.UUID
		for i, fill := range []int{60_000, 60_000, 0} {
			ids = append(ids, a.Produce(order{}, outbox.Header("n%_", fmt.Sprint("x", i)),
				outbox.Header("traceparent", fmt.Sprintf("00-%s-b7ad6b716920333%d-01", trace, i))).MessageID)
			if fill > 0 {
				a.Fill(fill, "order.placed")
			}
		}
		a.Exec("DELETE FROM consumer_messages WHERE id BETWEEN 1000 AND 20000")
		find := func(search admin.Search) (found []admin.Message, calls int, first int) {
			first = -1
			for place := new(admin.Cursor); place != nil; calls++ {
				list, next, err := client.Find(ctx, db, search, *place)
				if err != nil {
					t.Fatal(err)
				}
				if found = append(found, list...); first < 0 && len(list) > 0 {
					first = calls
				}
				if next != nil && next.Examined <= place.Examined {
					t.Fatalf("examined: got %d after %d", next.Examined, place.Examined)
				}
				if place = next; calls > 10 {
					t.Fatal("got no end")
				}
			}
			return found, calls, first
		}
		for i, id := range ids {
			found, calls, first := find(admin.Search{MessageID: id})
			if len(found) != 2 || found[0].MessageID != id || found[1].MessageID != id || found[0].Payload != nil || calls < 3 {
				t.Errorf("message id %d: got %+v in %d calls, want both its messages", i, found, calls)
			}
			if first > 0 && db.Dialect().Name() == dialect.PG { // what fills the others has no instants
				t.Errorf("message id %d: got it in call %d, want it near its time", i, first)
			}
			if found, _, _ := find(admin.Search{Header: "n%_", Value: fmt.Sprint("x", i)}); len(found) != 2 || found[0].MessageID != id {
				t.Errorf("header of message %d: got %+v, want both its messages", i, found)
			}
		}
		for name, test := range map[string]struct {
			search admin.Search
			want   int
		}{
			"a trace":                     {admin.Search{TraceID: strings.ToUpper(trace)}, 6},
			"a trace and a header":        {admin.Search{TraceID: trace, Header: "n%_", Value: "x1"}, 2},
			"a value in other letters":    {admin.Search{Header: "n%_", Value: "X1"}, 0},
			"a wildcard":                  {admin.Search{Header: "n%%", Value: "x1"}, 0},
			"the beginning of a value":    {admin.Search{Header: "n%_", Value: "x"}, 0},
			"a header of nobody":          {admin.Search{Header: `n":"x`, Value: "1"}, 0},
			"a message of nobody":         {admin.Search{MessageID: uuid.Must(uuid.NewV7())}, 0},
			"one of an id without a time": {admin.Search{MessageID: uuid.New()}, 0},
			"a message of another trace":  {admin.Search{MessageID: ids[0], TraceID: strings.Repeat("1", 32)}, 0},
		} {
			if found, _, _ := find(test.search); len(found) != test.want {
				t.Errorf("%s: got %d, want %d", name, len(found), test.want)
			}
		}
		for name, search := range map[string]admin.Search{"nothing": {}, "a short trace": {TraceID: "ab"},
			"a trace of no digits": {TraceID: strings.Repeat("%", 32)}, "a value alone": {Value: "v"}} {
			if _, _, err := client.Find(ctx, db, search, admin.Cursor{}); !errors.Is(err, bus.ErrInvalidOption) {
				t.Errorf("%s: got %v, want ErrInvalidOption", name, err)
			}
		}
		for _, after := range []string{"!", "e30", "bm8"} {
			if _, _, err := client.Find(ctx, db, admin.Search{MessageID: ids[0]}, admin.Cursor{After: after}); !errors.Is(err,
				bus.ErrInvalidOption) {
				t.Errorf("place %q: got %v, want ErrInvalidOption", after, err)
			}
		}
	})
}
