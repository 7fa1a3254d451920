package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// TestManyClaimsElsewhereHideNothing: what is claimed of a key is not claimed again, however
// much others have claimed.
func TestManyClaimsElsewhereHideNothing(t *testing.T) {
	t.Parallel()
	db := testdb.Postgres(t)
	a := testapp.New(t, db)
	s := storeOf(t, db)
	a.Exec(`INSERT INTO message_claims (owner, solo, claimed_at, leased_until, message_ids)
SELECT 'other', FALSE, now(), now() + interval '1 hour', array_agg(n) FROM generate_series(1000001, 1110000) n`)
	row := store.NewMessage{MessageID: uuid.New(), ConsumerType: "c", PayloadType: "p", Payload: "{}", OrderKey: "k", AnyOrder: true}
	testapp.Must[map[uuid.UUID]int](t)(s.Outbox.Insert(t.Context(), db, []store.NewMessage{row}))
	lanes := store.Lanes{Source: store.Source{Name: "c", Names: []string{"c"}, Payloads: []string{"p"}, PerKey: 5}, Run: 5}
	for i, want := range []int{1, 0} {
		l := lanes
		c := testapp.Must[store.Claim](t)(s.Claims.Claim(t.Context(), db,
			store.ClaimRequest{Owner: "o", Lease: time.Minute, Limit: 10, MaxBytes: 1 << 20, Lanes: &l}))
		if len(c.Messages) != want {
			t.Errorf("claim %d: got %d messages, want %d", i+1, len(c.Messages), want)
		}
	}
}
