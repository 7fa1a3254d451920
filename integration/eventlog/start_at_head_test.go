package eventlog_test

import (
	"slices"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestAProjectionStartsAtTheHead, and so does its next version. Neither gets replays.
func TestAProjectionStartsAtTheHead(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		l := newLedger(t, db)
		applied := func(suffix string) (versions []int) {
			testapp.OK(t, db.NewRaw("SELECT version FROM applied"+suffix+" ORDER BY version").Scan(l.ctx, &versions))
			return versions
		}
		first, second := balances(), balances2()
		first.StartAtHead, first.Reset = true, nil
		second.StartAtHead, second.Reset = true, nil
		l.append("account-1", eventlog.NoStream, moved{1}, moved{2})
		l.number()
		testapp.OK(t, l.runner(first).Check(l.ctx))
		l.append("account-1", eventlog.AnyVersion, moved{3}) // after the start
		l.catchUp(l.runner(first))
		l.append("account-1", eventlog.AnyVersion, moved{4})
		l.catchUp(l.runner(first)) // it does not start again
		l.append("account-1", eventlog.AnyVersion, moved{5})
		l.number()
		testapp.OK(t, l.runner(first, second).Check(l.ctx))
		l.append("account-1", eventlog.AnyVersion, moved{6})
		l.catchUp(l.runner(first, second))
		if got := applied(""); !slices.Equal(got, []int{3, 4, 5, 6}) {
			t.Errorf("version 1: got events %v, want those since its start, 3 to 6", got)
		}
		if got := applied("2"); !slices.Equal(got, []int{6}) {
			t.Errorf("version 2: got events %v, want 6, the only one since its start", got)
		}
		for _, table := range []string{"applied", "applied2"} {
			if n := l.count("SELECT count(*) FROM " + table + " WHERE mode = 'replay'"); n != 0 {
				t.Errorf("%s: got %d replays, want none", table, n)
			}
		}
	})
}
