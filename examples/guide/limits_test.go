package guide_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
)

// counting returns a consumer that adds to runs.
func counting[T any](runs *int) func(context.Context, T) error {
	return func(context.Context, T) error {
		*runs++
		return nil
	}
}

func TestConsumersWithLimitsPerKeyRun(t *testing.T) {
	var synced, audited, exported int
	kit := bustest.NewKit(t, openMemory(t), guide.Shared(
		counting[guide.AddressChanged](&synced), counting[guide.AddressChanged](&audited), counting[guide.AddressChanged](&exported))...)
	for range 10 {
		kit.Produce(guide.AddressChanged{CustomerID: "c-1"})
	}
	kit.DrainUntilIdle()
	if synced != 10 || audited != 10 || exported != 1 {
		t.Errorf("runs: got %d, %d and %d, want ten of those without a rate, and one of the other", synced, audited, exported)
	}
	for range 10 { // five a second
		kit.Advance(200 * time.Millisecond)
		kit.DrainUntilIdle()
	}
	if exported != 10 {
		t.Errorf("exported in two seconds: got %d, want 10", exported)
	}
}

func TestRateLimitOfTheGuideAllowsItsBurst(t *testing.T) {
	var charged int
	kit := bustest.NewKit(t, openMemory(t), guide.Rated(counting[guide.OrderPlaced](&charged))...)
	for range 30 {
		kit.Produce(guide.OrderPlaced{OrderID: "o-1"})
	}
	kit.DrainUntilIdle()
	if charged != 20 {
		t.Errorf("at once: got %d, want the burst of 20", charged)
	}
	kit.Advance(100 * time.Millisecond)
	kit.DrainUntilIdle()
	if charged != 30 {
		t.Errorf("after 100 ms: got %d, want all 30", charged)
	}
}

func TestCircuitBreakerOfTheGuideOpens(t *testing.T) {
	failing, runs := true, 0
	db := openMemory(t)
	kit := bustest.NewKit(t, db, guide.Broken(func(context.Context, guide.OrderPlaced) error {
		runs++
		if failing {
			return errors.New("no answer")
		}
		return nil
	})...)
	for range 60 {
		kit.Produce(guide.OrderPlaced{OrderID: "o-1"})
	}
	kit.DrainUntilIdle()
	if runs >= 60 || runs < 50 {
		t.Errorf("runs until it opened: got %d, want 50 to 59", runs)
	}
	failing = false
	for range 5 {
		kit.Advance(30 * time.Second)
		kit.DrainUntilIdle()
	}
	if pending, _, err := kit.Admin.List(kit.Context(), db, admin.Filter{}, admin.Page{}); err != nil || len(pending) != 0 {
		t.Errorf("pending after it closed: got %d, %v, want none", len(pending), err)
	}
}

func TestLimitedConsumersOfTheGuideRun(t *testing.T) {
	var exported, charged int
	kit := bustest.NewKit(t, openMemory(t), guide.Limited(counting[guide.ReportDue](&exported), counting[guide.OrderPlaced](&charged))...)
	for range 12 {
		kit.Produce(guide.ReportDue{})
		kit.Produce(guide.OrderPlaced{OrderID: "o-1"})
	}
	if kit.DrainUntilIdle(); exported != 12 || charged != 12 {
		t.Errorf("runs: got %d and %d, want 12 of each", exported, charged)
	}
}
