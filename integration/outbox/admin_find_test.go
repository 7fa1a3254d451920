package outbox_test

import (
	"context"
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
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
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

// TestAFindCountsWhatItExamined, also where it finds more than fits in one answer.
func TestAFindCountsWhatItExamined(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Fill(20_000, "order.placed")
		a.Exec(`UPDATE consumer_messages SET headers = '{"tenant":"acme"}'`)
		client, search := a.Admin(), admin.Search{Header: "tenant", Value: "acme"}
		found, next, err := client.Find(t.Context(), db, search, admin.Cursor{})
		if err != nil || len(found) != 1000 || next == nil || next.Examined != 1000 {
			t.Fatalf("first: got %d of %+v and error %v, want 1000 of 1000", len(found), next, err)
		}
		found, next, err = client.Find(t.Context(), db, search, *next)
		if err != nil || len(found) != 1000 || next == nil || next.Examined != 2000 {
			t.Errorf("second: got %d of %+v and error %v, want 1000 of 2000", len(found), next, err)
		}
	})
}

func TestAdminListExaminesWhatItSays(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("k", bus.Ordered(bus.BlockKey)))
		client, ctx := a.Admin(), t.Context()
		for i := range 20 {
			a.Produce(order{N: i}, outbox.OrderingKey("a"))
		}
		a.Exec("UPDATE consumer_messages SET attempts = 1 WHERE id IN (11, 34)")
		filter, found, empty := admin.Filter{Retrying: true}, 0, 0
		for page := (&admin.Page{ScanLimit: 6, Size: 3}); page != nil; {
			list, next, err := client.List(ctx, db, filter, *page)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range list {
				if m.Attempts != 1 || m.Payload != nil {
					t.Errorf("message: got %+v, want one that is retried, without its payload", m)
				}
			}
			if found += len(list); len(list) == 0 && next != nil {
				empty++
			}
			if next != nil && strings.Contains(next.After, "=") || next != nil && next.ScanLimit != 6 {
				t.Errorf("next: got %+v", next)
			}
			page = next
		}
		if found != 2 || empty == 0 {
			t.Errorf("messages: got %d with %d empty pages, want 2 with some", found, empty)
		}
		if n := testapp.Must[int](t)(client.Count(ctx, db, filter)); n != 2 {
			t.Errorf("count: got %d, want 2", n)
		}
		all, next, err := client.List(ctx, db, admin.Filter{}, admin.Page{ScanLimit: 1000, Size: 1000})
		if err != nil || next != nil || len(all) != 40 || all[39].OrderingKey != "a" || all[0].OrderingKey == "a" && all[0].Consumer == "k" {
			t.Errorf("all: got %d and %v, %v, want 40, those with keys last", len(all), next, err)
		}
		_, next, err = client.List(ctx, db, admin.Filter{Consumer: "k"}, admin.Page{ScanLimit: 5})
		if err != nil || next == nil {
			t.Fatalf("with keys: got %v, %v", next, err)
		}
		next.ScanLimit = 0
		if _, _, err := client.List(ctx, db, admin.Filter{Consumer: "k"}, *next); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("a page of another listing: got %v, want ErrInvalidOption", err)
		}
	})
}

func TestAdminGetsHeads(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		client, reader, ctx := a.Admin(), a.PendingReader(), t.Context()
		a.Produce(order{ID: strings.Repeat("é", 300_000)}, outbox.Header("h", "v"))
		id := a.Pending()[0].ID
		var sent []string
		hooked := db.WithQueryHook(testapp.QueryHook(func(_ context.Context, query string) { sent = append(sent, query) }))
		whole := testapp.Must[admin.Message](t)(client.Get(ctx, db, id))
		for _, most := range []int{0, 1, 8, 9, 10, 1000, 1 << 20} {
			got, err := reader.Head(ctx, hooked, id, most)
			want := min(most, len(whole.Payload))
			if most == 8 || most == 10 { // in the middle of a character
				want--
			}
			if most == 1000 {
				want--
			}
			if err != nil || string(got.Payload) != string(whole.Payload[:want]) || got.PayloadBytes != len(whole.Payload) ||
				got.Headers["h"] != "v" {
				t.Errorf("the first %d bytes: got %d of %d and %v, want %d of %d", most, len(got.Payload), got.PayloadBytes, err, want,
					len(whole.Payload))
			}
		}
		for _, query := range sent {
			if !strings.Contains(query, "substr(m.payload, 1,") {
				t.Errorf("the whole payload is read: %s", query)
			}
		}
		if _, err := reader.Head(ctx, db, id+1, 10); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("head of nothing: got %v, want ErrNotFound", err)
		}
		if _, err := reader.Head(ctx, db, id, -1); !errors.Is(err, bus.ErrInvalidOption) {
			t.Errorf("a head of -1 bytes: got %v, want ErrInvalidOption", err)
		}
	})
}

func TestAdminListsMessagesOfAClaim(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		started, release := make(chan struct{}, 10), make(chan struct{})
		a := testapp.New(t, db, bus.Consume("c", func(context.Context, order) error {
			started <- struct{}{}
			<-release
			return nil
		}))
		a.ProduceMany(3)
		r := a.Start(testapp.Fast())
		for range 3 {
			<-started
		}
		reader, held := a.PendingReader(), 0
		for _, claim := range testapp.Must[[]admin.Claim](t)(reader.Claims(t.Context(), db)) {
			list := testapp.Must[[]admin.Message](t)(reader.ListClaimed(t.Context(), db, claim.ID))
			for _, m := range list {
				if m.State != admin.Leased || m.Claim == nil || m.Claim.ID != claim.ID {
					t.Errorf("message: got %+v, want one of claim %d", m, claim.ID)
				}
			}
			held += len(list)
		}
		if held != 3 {
			t.Errorf("messages of claims: got %d, want 3", held)
		}
		close(release)
		testapp.Eventually(t, "all are done", a.Empty)
		if list, err := reader.ListClaimed(t.Context(), db, 1); err != nil || len(list) != 0 {
			t.Errorf("messages of no claim: got %v, %v, want none", list, err)
		}
		r.MustStop()
	})
}

// TestMatchingMessagesAreListedInParts, and only up to a given id.
func TestMatchingMessagesAreListedInParts(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("k", bus.Ordered(bus.BlockKey)))
		for range 20 {
			a.Produce(order{}, outbox.OrderingKey("a"))
		}
		a.Exec("UPDATE consumer_messages SET attempts = 1 WHERE id <= 30")
		st := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		for _, consumer := range []string{"c", "k"} {
			filter := store.PendingFilter{Consumer: consumer, Retrying: true}
			found, last := 0, int64(0)
			for more, calls := true, 0; more; calls++ {
				var ids []int64
				var err error
				before := last
				if ids, last, more, err = st.Pending.Matching(t.Context(), db, filter, last, 24, 5); err != nil || calls > 10 ||
					len(ids) > 5 || last < before {
					t.Fatalf("matching: got %v up to %d and %v in call %d", ids, last, err, calls)
				}
				found += len(ids)
			}
			if want := a.Count("SELECT count(*) FROM consumer_messages WHERE id <= 24 AND consumer_type = ?", consumer); found != want ||
				last != 24 {
				t.Errorf("matching: got %d up to %d, want %d up to 24", found, last, want)
			}
		}
	})
}

// TestMatchingLooksAtAPartAtATime: a filter that matches little does not read the whole table in one call.
func TestMatchingLooksAtAPartAtATime(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.Fill(60_000, "order.placed")
		nth := func(n int) int64 { // ids have gaps
			return int64(a.Count("SELECT id FROM consumer_messages ORDER BY id LIMIT 1 OFFSET ?", n-1))
		}
		a.Exec("UPDATE consumer_messages SET attempts = 1 WHERE id > ?", nth(59_990))
		part, all := nth(50_000), nth(60_000)
		st := testapp.Must[*store.Store](t)(store.For(db.Dialect().Name(), bus.Tables{}))
		filter := store.PendingFilter{Retrying: true}
		ids, last, more, err := st.Pending.Matching(t.Context(), db, filter, 0, 0, 100)
		if err != nil || len(ids) != 0 || !more || last != part {
			t.Errorf("the first part: got %v up to %d, more %t and %v, want nothing up to 50,000, and more", ids, last, more, err)
		}
		ids, last, more, err = st.Pending.Matching(t.Context(), db, filter, last, 0, 100)
		if err != nil || len(ids) != 10 || more || last != all {
			t.Errorf("the second part: got %v up to %d, more %t and %v, want ten, and no more", ids, last, more, err)
		}
	})
}
