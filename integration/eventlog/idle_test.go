package eventlog_test

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// TestAnOpenSnapshotDelaysNothing has a reader keep its snapshot while thousands of
// events come, and a writer commit after others of later numbers: nothing is
// skipped or inverted, and numbering goes on. What it has to pass over, because the
// snapshot might still see it, makes it slower, but not by much.
func TestAnOpenSnapshotDelaysNothing(t *testing.T) {
	t.Parallel()
	const rounds, each = 10, 1000
	a := newApp(t, testdb.Postgres(t))
	a.append("account-0", eventlog.NoStream, moved{0})
	snapshot, err := a.db.BeginTx(a.ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Rollback() //nolint:errcheck // it has only read
	testapp.OK(t, testapp.Second(snapshot.NewRaw("SELECT count(*) FROM events").Exec(a.ctx)))
	straggler, err := a.db.BeginTx(a.ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		t.Fatal(err)
	}
	testapp.OK(t, testapp.Second(a.log.Append(a.ctx, straggler, "account-late", eventlog.NoStream, moved{1})))
	events := make([]bus.Payload, each)
	for i := range events {
		events[i] = moved{i}
	}
	follower := newReader()
	var ticks, pages []time.Duration
	for round := range rounds {
		a.append(fmt.Sprintf("account-%d", round%3+1), eventlog.AnyVersion, events...)
		begun := time.Now()
		if n := a.number(); n < each {
			t.Errorf("numbered beside a snapshot: got %d, want %d", n, each)
		}
		pages = append(pages, time.Since(begun))
		a.append("account-0", eventlog.AnyVersion, moved{round})
		begun = time.Now()
		a.number()
		ticks = append(ticks, time.Since(begun))
		follower.follow(t, a)
	}
	testapp.OK(t, straggler.Commit())
	a.append("account-late", 1, moved{2}, moved{3})
	a.number()
	follower.follow(t, a)
	if want := int64(1 + rounds*(each+1) + 3); follower.after != want || follower.versions["account-late"] != 3 {
		t.Errorf("after the straggler: got position %d and its version %d, want %d and 3", follower.after,
			follower.versions["account-late"], want)
	}
	slices.Sort(ticks)
	slices.Sort(pages)
	t.Logf("numbering one event beside a snapshot older than %d: median %s, worst %s", rounds*each, ticks[rounds/2], ticks[rounds-1])
	if median, page := ticks[rounds/2], pages[rounds/2]; median > page {
		t.Errorf("numbering one event beside a snapshot: got a median of %s, want it far below the %s of %d events", median, page, each)
	}
}
