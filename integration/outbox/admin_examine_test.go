package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

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
