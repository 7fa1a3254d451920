package cron_test

import (
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/schedule/cron"
)

func BenchmarkParse(b *testing.B) {
	for _, expr := range []string{"@daily", "0 30 4 * * *", "*/30 0,15,30-45/5 9-17 ? JAN-JUN MON-FRI", "0 0 0 30 2 *", "61 * * * *"} {
		b.Run(expr, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = cron.Parse(expr)
			}
		})
	}
}

func BenchmarkNext(b *testing.B) {
	from := time.Date(2026, 11, 21, 12, 34, 56, 789, time.UTC)
	for _, bench := range []struct{ expr, zone string }{
		{"* * * * * *", "UTC"},
		{"0 30 4 * * *", "UTC"},
		{"0 30 4 * * *", "America/New_York"},
		{"0 0 12 LW * ?", "America/New_York"},
		{"0 0 0 29 2 MON", "America/New_York"},
		{"* * * 29 2 MON", "America/New_York"},
		{"@every 1h30m", "America/New_York"},
	} {
		b.Run(bench.expr+" "+bench.zone, func(b *testing.B) {
			e, loc := mustParse(b, bench.expr), mustLoad(b, bench.zone)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Next(from, loc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
