package store_test

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// olderRecover is the statement of the last version that knew no keys. What else such a
// program asks for messages is unchanged: TestGoldenSQL.
//
//go:embed testdata/older/recover.sql
var olderRecover string

// TestAnOlderProgramKeepsTheOrder takes back what a process has left that ran messages in
// order, beside one that knows how to.
func TestAnOlderProgramKeepsTheOrder(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	testapp.New(t, db)
	s := storeOf(t, db)
	var rows []store.NewMessage
	for n := range 3 {
		rows = append(rows, store.NewMessage{MessageID: uuid.New(), ConsumerType: "c", PayloadType: "p", Payload: fmt.Sprint(n), OrderKey: "k"})
	}
	testapp.Must[map[uuid.UUID]int](t)(s.Outbox.Insert(t.Context(), db, rows))
	lanes := store.Lanes{Source: store.Source{Name: "c", Names: []string{"c"}, Payloads: []string{"p"}, Parks: true}, Run: 10}
	claim := func(owner string, lease time.Duration, selection store.Selection) (got string) {
		t.Helper()
		r := store.ClaimRequest{Owner: owner, Lease: lease, Limit: 10, MaxBytes: 1 << 20, Select: selection}
		if selection == store.Clean {
			l := lanes
			r.Lanes = &l
		} else {
			r.Stuck = []store.Lanes{lanes}
		}
		c := testapp.Must[store.Claim](t)(s.Claims.Claim(t.Context(), db, r))
		for _, m := range c.Messages {
			got += string(m.Payload)
			if owner != "vanishing" {
				testapp.Must[store.Settled](t)(s.Claims.Settle(t.Context(), db, owner, lease,
					[]store.Result{{Claim: c.ID, Message: m.ID, Lane: m.Lane, Outcome: store.Done}}))
			}
		}
		return got
	}
	if got := claim("vanishing", -time.Second, store.Clean); got != "012" {
		t.Fatalf("the first claim: got %q, want all", got)
	}
	testapp.OK(t, testapp.Second(db.NewRaw(strings.TrimSuffix(strings.TrimSpace(olderRecover), ";")).Exec(t.Context())))
	if got := claim("newer", time.Minute, store.Clean); got != "" {
		t.Errorf("clean messages: got %q, want none: all have crashed", got)
	}
	for n := range 3 {
		if got := claim("newer", time.Minute, store.Suspects); got != fmt.Sprint(n) {
			t.Errorf("claim %d of those that have crashed: got %q, want %d, the first of the key", n, got, n)
		}
	}
	left := testapp.Must[[]store.Message](t)(s.Pending.Messages(t.Context(), db))
	if len(left) > 0 {
		t.Errorf("got %d messages left, want none", len(left))
	}
}
