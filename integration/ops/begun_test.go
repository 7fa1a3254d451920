package ops_test

import (
	"errors"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// TestWhatIsBegunCanBeClosed: a change whose process died does not stand in the audit as under way until that forgets it.
func TestWhatIsBegunCanBeClosed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"))
		a.ProduceMany(1)
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Administrator))
		testapp.OK(t, testapp.Second(s.Messages().Cancel(t.Context(), "why", int64(a.Count("SELECT MAX(id) FROM consumer_messages")))))
		id := int64(a.Count("SELECT MAX(id) FROM message_operations"))
		begun := func(ago time.Duration) {
			t.Helper()
			a.Exec("UPDATE message_operations SET state = 'started', finished_at = NULL, created_at = "+testapp.In(db, -ago)+" WHERE id = ?", id)
		}
		begun(9 * time.Minute)
		if o, err := s.Operations().Stop(t.Context(), "it must be dead", id); !errors.Is(err, ops.ErrInvalidState) || o.State != ops.Started {
			t.Errorf("within ten minutes: got %+v, error %v, want it as it was", o, err)
		}
		begun(11 * time.Minute)
		stands := func() (found bool) {
			t.Helper()
			for _, f := range testapp.Must[[]ops.Finding](t)(s.Doctor(t.Context())) {
				found = found || f.Check == "operations" && f.Severity != ops.OK
			}
			return found
		}
		if !stands() {
			t.Error("want the doctor to find it")
		}
		if _, err := operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer)).Operations().Stop(t.Context(), "", id); !errors.Is(err,
			ops.ErrForbidden) {
			t.Errorf("by a viewer: got error %v, want ErrForbidden", err)
		}
		if o, err := s.Operations().Stop(t.Context(), "it is done", id); err != nil || o.State != ops.Stopped || o.FinishedAt.IsZero() ||
			o.Note != "stopped by ada: it is done" {
			t.Errorf("got %+v, error %v, want it closed", o, err)
		}
		if stands() {
			t.Error("want the doctor to find nothing any more")
		}
	})
}

// TestAllowIsAskedOfTheNamed: minutes and crashes are of consumers, and are shown to who may look at those.
func TestAllowIsAskedOfTheNamed(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		a := testapp.New(t, db, testapp.Consumed("c"), testapp.Consumed("d"))
		a.Exec("INSERT INTO message_crashes (row_id, consumer_type, owner, solo, crashed_at) VALUES (1, 'c', 'o', TRUE, " +
			testapp.NowOf(db) + "), (2, 'd', 'o', TRUE, " + testapp.NowOf(db) + ")")
		narrow := operator.As(serviceOf(t, db, a.Registry), ops.Principal{Name: "eve", Role: ops.Administrator,
			Allow: func(_ ops.Action, consumer string) bool { return consumer != "d" }})
		for what, test := range map[string]struct {
			err  error
			want error
		}{
			"minutes of c":    {testapp.Second(narrow.Consumers().Minutes(t.Context(), time.Hour, "c")), nil},
			"minutes of d":    {testapp.Second(narrow.Consumers().Minutes(t.Context(), time.Hour, "d")), ops.ErrForbidden},
			"minutes of both": {testapp.Second(narrow.Consumers().Minutes(t.Context(), time.Hour, "c", "d")), ops.ErrForbidden},
			"crashes of c's":  {testapp.Second(narrow.Messages().Crashes(t.Context(), 1, 10)), nil},
			"crashes of d's":  {testapp.Second(narrow.Messages().Crashes(t.Context(), 2, 10)), ops.ErrForbidden},
		} {
			if !errors.Is(test.err, test.want) {
				t.Errorf("%s: got error %v, want %v", what, test.err, test.want)
			}
		}
		found := testapp.Must[[]operator.Crash](t)(narrow.Messages().Crashes(t.Context(), 1, 10))
		if len(found) != 1 || found[0].Consumer != "c" {
			t.Errorf("got %+v, want the one", found)
		}
	})
}
