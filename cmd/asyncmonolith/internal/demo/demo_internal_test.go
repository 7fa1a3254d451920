package demo

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// It looks at projections by the demo's own runners, which nobody else has.

func open(t *testing.T, path string, force bool) *Demo {
	t.Helper()
	d, err := New(t.Context(), path, force)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// There is something of everything, and nothing runs any more.
func TestSomethingOfEverything(t *testing.T) {
	ctx := t.Context()
	d := open(t, filepath.Join(t.TempDir(), "shop.db"), false)
	before, began := runtime.NumGoroutine(), time.Now()
	ready := 0
	if err := d.Run(ctx, 0, func() { ready++ }); err != nil || ready != 1 {
		t.Fatalf("run: got %v, and ready %d times", err, ready)
	}
	t.Logf("ready after %s", time.Since(began))
	for timeout := time.After(10 * time.Second); runtime.NumGoroutine() > before+4; { // connections have some
		select {
		case <-timeout:
			t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
		case <-time.After(20 * time.Millisecond):
		}
	}
	session := d.session(ada)
	o := must[operator.Overview](t)(session.Overview(ctx))
	t.Run("messages", func(t *testing.T) { checkMessages(t, d, o) })
	t.Run("failures", func(t *testing.T) { checkFailures(t, session, o) })
	t.Run("processes", func(t *testing.T) { checkProcesses(t, session, o) })
	t.Run("operations", func(t *testing.T) { checkOperations(t, session) })
	t.Run("schedules", func(t *testing.T) { checkSchedules(t, session) })
	t.Run("projections", func(t *testing.T) { checkProjections(t, d) })
	t.Run("minutes", func(t *testing.T) { checkMinutes(t, o) })
}

func checkMessages(t *testing.T, d *Demo, o operator.Overview) {
	var ready, delayed, leased, poisoned int64
	for _, q := range o.Queues {
		ready, delayed, leased, poisoned = ready+q.Ready, delayed+q.Delayed, leased+q.Leased, poisoned+q.Poisoned
		if q.Consumer == catalogue && (q.PausedBy != ada || q.PauseNote == "" || q.Ready != 260) {
			t.Errorf("paused: got %+v", q)
		}
		if q.Consumer == faxes && (q.Registered || q.Ready != 2) {
			t.Errorf("stranger: got %+v", q)
		}
	}
	if ready == 0 || delayed == 0 || leased == 0 || poisoned == 0 {
		t.Errorf("got %d ready, %d delayed, %d leased, %d poisoned, want some of each", ready, delayed, leased, poisoned)
	}
	retrying := must[int](t)(d.admin.Count(t.Context(), d.db, admin.Filter{Retrying: true}))
	suspects := must[int](t)(d.admin.Count(t.Context(), d.db, admin.Filter{Crashed: true}))
	if keys := must[[]operator.BlockedKey](t)(d.session(ada).Consumers().BlockedKeys(t.Context(), "", 100)); retrying != 14 ||
		suspects != 1 || len(keys) != 2 {
		t.Errorf("got %d retrying, %d suspects, keys %+v, want 14, 1 and 2", retrying, suspects, keys)
	}
}

func checkFailures(t *testing.T, session *operator.Session, o operator.Overview) {
	versions := make(map[string]int)
	for _, f := range o.Failures {
		versions[f.FirstVersion]++
		if f.FirstVersion == newVersion && (f.Consumer != charges || o.At.Sub(f.FirstAt) > deployed) {
			t.Errorf("begun by the new version: got %+v", f)
		}
	}
	if len(o.Failures) < 8 || versions[newVersion] != 1 || versions[oldVersion] == 0 {
		t.Errorf("got %d kinds of failures, by versions %v", len(o.Failures), versions)
	}
	groups, _, err := session.Poisoned().Groups(t.Context(), "")
	var sizes []int
	for _, g := range groups {
		sizes = append(sizes, g.Messages)
		if g.Failure != nil && g.FirstAt.Before(g.Failure.FirstAt) {
			t.Errorf("group %s of %s: poisoned at %s, before its failure is known, at %s", g.Fingerprint, g.Consumer, g.FirstAt, g.Failure.FirstAt)
		}
	}
	slices.Sort(sizes)
	if err != nil || len(slices.Compact(sizes)) < 5 || sizes[len(sizes)-1] < 80 {
		t.Errorf("poisoned groups: got sizes %v, %v", sizes, err)
	}
}

func checkProcesses(t *testing.T, session *operator.Session, o operator.Overview) {
	status, versions := make(map[admin.ProcessStatus]int), make(map[string]bool)
	for _, p := range o.Processes {
		status[p.Status]++
		versions[p.Version] = true
	}
	if status[admin.ProcessAlive] != workers+2 || status[admin.ProcessLost] != 1 || len(versions) != 2 {
		t.Errorf("got %v of versions %v", status, versions)
	}
	if must[bool](t)(session.HasRunner(t.Context(), 0, "")) {
		t.Error("a process says that it carries out operations, and nobody does")
	}
	crashes := must[[]operator.Crash](t)(session.Messages().Crashes(t.Context(), 0, 10))
	if len(crashes) != 1 || crashes[0].Owner != lost {
		t.Fatalf("crashes: got %+v", crashes)
	}
	if m, err := session.Messages().Get(t.Context(), crashes[0].ID); err != nil || m.Crashes != 1 || m.Consumer != invoices {
		t.Errorf("suspect: got %+v, %v", m, err)
	}
	for _, c := range must[[]admin.Claim](t)(session.Consumers().Claims(t.Context())) {
		if c.Expired || !slices.ContainsFunc(o.Processes,
			func(p admin.Process) bool { return p.ID == c.Owner && p.Status == admin.ProcessAlive }) {
			t.Errorf("claim of nobody: %+v", c)
		}
	}
}

func checkOperations(t *testing.T, session *operator.Session) {
	all, _, err := session.Operations().List(t.Context(), admin.Page{})
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[ops.OperationState]int)
	for _, o := range all {
		got[o.State]++
	}
	for _, state := range []ops.OperationState{ops.Planned, ops.Running, ops.Paused, ops.Undone, ops.Done} {
		if got[state] == 0 {
			t.Errorf("no operation is %s: %v", state, got)
		}
	}
	still := 0
	for _, f := range must[[]ops.Finding](t)(session.Check(t.Context())) {
		if f.Check == "operations" && strings.Contains(f.Text, "no live process runs operations") &&
			strings.Contains(f.Remedy, "operations run") {
			still++
		}
	}
	if still != got[ops.Running] {
		t.Errorf("got %d operations that are found to stand still, want each of the %d that nobody carries on with", still, got[ops.Running])
	}
}

func checkSchedules(t *testing.T, session *operator.Session) {
	all, _, err := session.Schedules().List(t.Context(), schedule.Filter{}, admin.Page{})
	if err != nil {
		t.Fatal(err)
	}
	failed, paused, changes := 0, 0, 0
	for _, s := range all {
		if s.LastError != "" && len(s.Recent) > 0 && s.Recent[0].Error != "" {
			failed++
		}
		if s.Paused {
			paused++
		}
		for i, next := range s.Next[:max(len(s.Next)-1, 0)] {
			if _, is := next.Zone(); next.YearDay() < s.Next[i+1].YearDay() {
				if _, will := s.Next[i+1].Zone(); is != will && s.Next[i+1].Sub(next) < 48*time.Hour {
					changes++
				}
			}
		}
	}
	if failed != 1 || paused != 1 || changes == 0 {
		t.Errorf("got %d failed, %d paused, %d that fire over a change of the clocks", failed, paused, changes)
	}
}

func checkProjections(t *testing.T, d *Demo) {
	sales, err := d.sales.Stats(t.Context())
	if err != nil || len(sales) == 0 {
		t.Fatal(err)
	}
	balances, err := d.balances.Stats(t.Context())
	if err != nil || len(balances) == 0 {
		t.Fatal(err)
	}
	if sales[0].Lag != 400 || balances[0].Lag != 0 || balances[0].Parked != 6 {
		t.Errorf("got %+v and %+v, want a lag of 400 and 6 parked", sales, balances)
	}
}

func checkMinutes(t *testing.T, o operator.Overview) {
	quiet, loud := 0, 0
	for _, m := range o.Minutes {
		if m.Consumer != charges {
			continue
		}
		if m.Poisoned > 0 {
			loud++
		} else {
			quiet++
		}
	}
	if quiet < 30 || loud < 20 {
		t.Errorf("got %d minutes without and %d with poisoned messages, want the deploy to show", quiet, loud)
	}
}

// What is not a demo database stays as it is, whatever is asked.
func TestOtherFilesAreLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.db")
	for _, text := range []string{"", "short", string(make([]byte, 4096))} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(t.Context(), path, true); !errors.Is(err, ErrForeign) {
			t.Errorf("%d bytes: got %v, want ErrForeign", len(text), err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Errorf("%d bytes: it was changed: %v", len(text), err)
		}
	}
	if _, err := New(t.Context(), t.TempDir(), true); err == nil {
		t.Error("a directory: got no error")
	}
}

// A demo database is replaced if that is asked for, and while the shop stays open it goes on.
func TestAnotherShop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.db")
	if d, err := New(t.Context(), path, false); err != nil || d.Close() != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), path, false); !errors.Is(err, ErrExists) {
		t.Fatalf("got %v, want ErrExists", err)
	}
	d := open(t, path, true)
	placed := 0
	if err := d.Run(t.Context(), 2*time.Second, func() { placed = d.orders }); err != nil {
		t.Fatal(err)
	}
	if d.orders <= placed {
		t.Errorf("nobody has ordered anything since: %d orders", d.orders)
	}
	for _, p := range must[[]admin.Process](t)(d.session(ada).Processes(t.Context(), time.Hour)) {
		if p.ID != lost && p.Status != admin.ProcessStopped {
			t.Errorf("%s %s on %s: got %s, want stopped", p.Kind, p.Version, p.Host, p.Status)
		}
	}
	if claims := must[[]admin.Claim](t)(d.session(ada).Consumers().Claims(t.Context())); len(claims) > 0 {
		t.Errorf("claims are left: %+v", claims)
	}
}

// The change of the clocks that comes next is found from any day.
func TestNextChange(t *testing.T) {
	vienna := must[*time.Location](t)(time.LoadLocation("Europe/Vienna"))
	for day := time.Date(2026, 1, 1, 9, 0, 0, 0, vienna); day.Year() < 2028; day = day.AddDate(0, 0, 1) {
		got := nextChange(day)
		_, is := got.Zone()
		if _, was := got.AddDate(0, 0, -1).Zone(); is == was || !got.After(day) || got.Day() < 4 {
			t.Fatalf("%s: got %s, which is none", day, got)
		}
	}
}
