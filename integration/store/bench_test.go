package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// BenchmarkSettle settles a claim in parts of 1,000 results, a fifth of them failed.
func BenchmarkSettle(b *testing.B) {
	most := testapp.BenchRows(b, 20_000)
	part := min(1_000, most/10)
	for _, size := range []int{most / 10, most} {
		b.Run(fmt.Sprintf("claim=%d", size), func(b *testing.B) {
			testdb.EachBenchmark(b, func(b *testing.B, db *bun.DB) {
				for range b.N {
					b.StopTimer()
					s, c := claimOf(b, db, size)
					b.StartTimer()
					for ; len(c.Messages) > 0; c.Messages = c.Messages[part:] {
						settled, err := s.Claims.Settle(b.Context(), db, "bench", time.Minute, mixed(c, part))
						if err != nil || settled.Applied != part {
							b.Fatalf("settle: got %+v, %v", settled, err)
						}
					}
				}
				b.ReportMetric(float64(size)*float64(b.N)/b.Elapsed().Seconds(), "results/s")
			})
		})
	}
}

// claimOf produces so many messages and claims them at once.
func claimOf(tb testing.TB, db *bun.DB, n int) (*store.Store, store.Claim) {
	tb.Helper()
	s, wants := backlogOfTwenty(tb, db, n)
	for i := range wants {
		wants[i].Limit = n / len(wants)
	}
	c, err := s.Claims.Claim(tb.Context(), db, store.ClaimRequest{Owner: "bench", Lease: time.Minute, MaxBytes: 1 << 30, Wants: wants})
	if err != nil || len(c.Messages) != n {
		tb.Fatalf("claim: got %d messages, %v, want %d", len(c.Messages), err, n)
	}
	return s, c
}

// BenchmarkClaimBehind claims for twenty consumers behind what others hold, and gives
// it back.
func BenchmarkClaimBehind(b *testing.B) {
	most := testapp.BenchRows(b, 12_500)
	for _, held := range []int{0, most / 500 * 500} {
		b.Run(fmt.Sprintf("held=%d", held), func(b *testing.B) {
			testdb.EachBenchmark(b, func(b *testing.B, db *bun.DB) {
				s, wants := backlogOfTwenty(b, db, held+500)
				r := store.ClaimRequest{Owner: "others", Lease: time.Hour, MaxBytes: 1 << 30, Wants: wants}
				for range held / 500 {
					if c, err := s.Claims.Claim(b.Context(), db, r); err != nil || len(c.Messages) != 500 {
						b.Fatalf("claim of others: got %d messages, %v", len(c.Messages), err)
					}
				}
				r.Owner = "bench"
				for b.Loop() {
					c, err := s.Claims.Claim(b.Context(), db, r)
					if err != nil || len(c.Messages) != 500 {
						b.Fatalf("claim: got %d messages, %v", len(c.Messages), err)
					}
					testapp.OK(b, s.Claims.Disclaim(b.Context(), db, "bench", []int64{c.ID}))
				}
			})
		})
	}
}

// backlogOfTwenty produces messages for twenty consumers, and returns what each wants.
func backlogOfTwenty(tb testing.TB, db *bun.DB, n int) (*store.Store, []store.Want) {
	tb.Helper()
	s, err := store.For(db.Dialect().Name(), bus.Tables{})
	if err == nil {
		err = s.Schema.Migrate(tb.Context(), db)
	}
	rows := make([]store.NewMessage, n)
	for i := range rows {
		rows[i] = store.NewMessage{ConsumerType: fmt.Sprint("c", i%20), PayloadType: "p", Payload: "{}"}
		rows[i].MessageID[0], rows[i].MessageID[1] = byte(i), byte(i>>8)
	}
	if err == nil {
		_, err = s.Outbox.Insert(tb.Context(), db, rows)
	}
	if err != nil {
		tb.Fatal(err)
	}
	wants := make([]store.Want, 20)
	for i := range wants {
		wants[i] = store.Want{Consumer: fmt.Sprint("c", i), Payload: "p", Limit: 25}
	}
	return s, wants
}
