package storetest

import (
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Run runs the suite. open returns a database each time it is called, empty or with the library's tables.
func Run(t *testing.T, open func(t *testing.T) *bun.DB) {
	for _, area := range areas() {
		t.Run(area.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range area.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					db := open(t)
					if err := area.missing(db); err != nil {
						t.Skip(err)
					}
					c.run(newKit(t, db))
				})
			}
		})
	}
}

// area is a part of the suite. Each of its cases has a database of its own.
type area struct {
	name   string
	cases  []testCase
	events bool // it needs the event log
	// anyOrder is true if it needs messages with keys to run in any order.
	anyOrder bool
}

// missing is an error where the database lacks what the area needs.
func (a area) missing(db *bun.DB) error {
	s, err := store.For(db.Dialect().Name(), bus.Tables{})
	switch {
	case err != nil: // which every case will see
	case a.events:
		return s.Events()
	case a.anyOrder:
		return s.AnyOrder()
	}
	return nil
}

type testCase struct {
	name string
	run  func(k *kit)
}

func areas() []area {
	return []area{
		{name: "migrate", cases: migrateCases()},
		{name: "insert", cases: insertCases()},
		{name: "text", cases: textCases()},
		{name: "claim", cases: claimCases()},
		{name: "lanes", cases: laneCases()},
		{name: "per key", cases: perKeyCases(), anyOrder: true},
		{name: "breakers", cases: breakerCases()},
		{name: "slots", cases: slotCases()},
		{name: "claim by place and size", cases: claimPlaceCases()},
		{name: "claim of crashed messages", cases: claimCrashedCases()},
		{name: "poll", cases: pollCases()},
		{name: "rename", cases: renameCases()},
		{name: "settle", cases: settleCases()},
		{name: "settle guards", cases: settleGuardCases()},
		{name: "finish", cases: finishCases()},
		{name: "keep", cases: keepCases()},
		{name: "extend and disclaim", cases: leaseCases()},
		{name: "recover", cases: recoverCases()},
		{name: "steps", cases: stepCases()},
		{name: "transaction", cases: transactionCases()},
		{name: "unregistered", cases: unregisteredCases()},
		{name: "groups", cases: groupCases()},
		{name: "pause", cases: pauseCases()},
		{name: "pending", cases: pendingCases()},
		{name: "examine", cases: examineCases()},
		{name: "inbox", cases: inboxCases()},
		{name: "reports", cases: reportCases()},
		{name: "operations", cases: operationCases()},
		{name: "diagnose", cases: diagnoseCases()},
		{name: "clock", cases: clockCases()},
		{name: "streams", cases: streamCases(), events: true},
		{name: "log", cases: logCases(), events: true},
		{name: "subscriptions", cases: subscriptionCases(), events: true},
		{name: "leases of subscriptions", cases: leaseSubscriptionCases(), events: true},
	}
}
