package storetest

import (
	"fmt"
	"testing"

	"github.com/uptrace/bun"
)

// Run runs the suite. open returns a new, empty database each time it is called.
func Run(t *testing.T, open func(t *testing.T) *bun.DB) {
	for _, area := range areas() {
		t.Run(area.name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			for i, c := range area.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(newKit(t, db, fmt.Sprintf("t%d_", i)))
				})
			}
		})
	}
}

// area is a part of the suite. Its cases share a database, each with tables of
// its own.
type area struct {
	name  string
	cases []testCase
}

type testCase struct {
	name string
	run  func(k *kit)
}

func areas() []area {
	return []area{
		{"migrate", migrateCases()},
		{"insert", insertCases()},
		{"text", textCases()},
		{"claim", claimCases()},
		{"claim by place and size", claimPlaceCases()},
		{"claim of crashed messages", claimCrashedCases()},
		{"probe", probeCases()},
		{"settle", settleCases()},
		{"settle guards", settleGuardCases()},
		{"finish", finishCases()},
		{"extend and disclaim", leaseCases()},
		{"recover", recoverCases()},
		{"transaction", transactionCases()},
		{"strangers", strangerCases()},
		{"pause", pauseCases()},
		{"pending", pendingCases()},
		{"clock", clockCases()},
		{"streams", streamCases()},
		{"log", logCases()},
		{"subscriptions", subscriptionCases()},
	}
}
