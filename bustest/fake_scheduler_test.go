package bustest_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func TestFakeSchedulerKeepsSchedules(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 2, 3, 4, 0, 0, 0, time.UTC)
	s := &bustest.FakeScheduler{Registry: newRegistry(t), Now: func() time.Time { return now }}
	id, err := s.Schedule(t.Context(), nil, orderPlaced{"1"}, "0 0 12 * * *", "UTC", schedule.Name("noon"), schedule.Tag("daily"), schedule.Header("tenant", "acme"))
	if err != nil || id != 1 {
		t.Fatalf("schedule: got %d, %v, want 1", id, err)
	}
	got := bustest.RequireScheduled(t, s, func(o orderPlaced) bool { return o.ID == "1" })
	if got.ID != 1 || got.Name != "noon" || got.Tag != "daily" || got.Headers["tenant"] != "acme" || got.Expression != "0 0 12 * * *" ||
		got.Zone != "UTC" || !got.NextFire.Equal(now.Add(8*time.Hour)) || !got.CreatedAt.Equal(now) {
		t.Errorf("schedule: got %+v, want what was given, due at noon", got)
	}
	now = now.Add(24 * time.Hour)
	if again, err := s.Schedule(t.Context(), nil, orderPlaced{"2"}, "0 0 12 * * *", "UTC", schedule.Name("noon")); err != nil || again != 1 {
		t.Errorf("the same name again: got %d, %v, want it to replace 1", again, err)
	}
	got = bustest.RequireScheduled[orderPlaced](t, s, nil)
	if string(got.Payload) != `{"id":"2"}` || got.Tag != "" || !got.NextFire.Equal(now.Add(-16*time.Hour)) {
		t.Errorf("replaced: got %+v, want the new payload at its old time", got)
	}
	if second, err := s.ScheduleAnother(t.Context(), nil, orderPlaced{"3"}, "@every 1h", "UTC", schedule.Tag("often")); err != nil || second != 2 {
		t.Errorf("an unnamed schedule: got %d, %v, want 2", second, err)
	}
	for filter, want := range map[schedule.Filter]int{{}: 2, {Name: "noon"}: 1, {Tag: "often"}: 1, {Tag: "none"}: 0} {
		if rows, err := s.List(t.Context(), nil, filter); err != nil || len(rows) != want {
			t.Errorf("list %+v: got %v, %v, want %d", filter, rows, err, want)
		}
	}
}

func TestFakeSchedulerChangesSchedules(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 2, 3, 4, 0, 0, 0, time.UTC)
	s := &bustest.FakeScheduler{Now: func() time.Time { return now }}
	if _, err := s.ScheduleAnother(t.Context(), nil, orderPlaced{"1"}, "@every 1h", "UTC", schedule.Tag("often")); err != nil {
		t.Fatal(err)
	}
	row := func() schedule.Schedule { t.Helper(); return bustest.RequireScheduled[orderPlaced](t, s, nil) }
	ok := func(what string, err error, check func(schedule.Schedule) bool) {
		t.Helper()
		if got := row(); err != nil || !check(got) {
			t.Errorf("%s: got %+v, %v", what, got, err)
		}
	}
	ok("pause", s.Pause(t.Context(), nil, 1), func(r schedule.Schedule) bool { return r.Paused })
	now = now.Add(90 * time.Minute)
	before := row().NextFire
	ok("resume", s.Resume(t.Context(), nil, 1), func(r schedule.Schedule) bool { return !r.Paused && r.NextFire.After(now) })
	resumed := row()
	now = now.Add(90 * time.Minute)
	if !before.Before(resumed.NextFire) {
		t.Errorf("resume: got %s, want what was missed since %s skipped", resumed.NextFire, before)
	}
	ok("resume again", s.Resume(t.Context(), nil, 1), func(r schedule.Schedule) bool { return r.NextFire.Equal(resumed.NextFire) })
	ok("run now", s.RunNow(t.Context(), nil, 1), func(r schedule.Schedule) bool { return r.NextFire.Equal(resumed.NextFire) })
	ok("update schedule", s.UpdateSchedule(t.Context(), nil, 1, "@every 2h", "UTC"), func(r schedule.Schedule) bool {
		return r.Expression == "@every 2h" && r.NextFire.Equal(now.Add(2*time.Hour))
	})
	ok("update payload", s.UpdatePayload(t.Context(), nil, 1, orderPlaced{"2"}), func(r schedule.Schedule) bool { return string(r.Payload) == `{"id":"2"}` })
	for what, err := range map[string]error{"delete": s.DeleteByID(t.Context(), nil, 7), "pause": s.Pause(t.Context(), nil, 7),
		"run now": s.RunNow(t.Context(), nil, 7)} {
		if !errors.Is(err, schedule.ErrNotFound) {
			t.Errorf("%s of a schedule that is not there: got %v, want ErrNotFound", what, err)
		}
	}
	if n, err := s.DeleteByTag(t.Context(), nil, "often"); n != 1 || err != nil {
		t.Errorf("delete by tag: got %d, %v, want 1", n, err)
	}
	if rows, _ := s.List(t.Context(), nil, schedule.Filter{}); len(rows) != 0 {
		t.Errorf("list: got %v, want none", rows)
	}
}

func TestFakeSchedulerRefusesWhatTheRealOneRefuses(t *testing.T) {
	t.Parallel()
	registry := newRegistry(t)
	real, err := schedule.NewScheduler(registry, schedule.Config{})
	if err != nil {
		t.Fatal(err)
	}
	fake := &bustest.FakeScheduler{Registry: registry}
	const daily = "@daily"
	tests := []struct {
		name             string
		payload          bus.Payload
		expression, zone string
		options          []schedule.Option
	}{
		{"a payload nobody consumes", orderShipped{}, daily, "UTC", nil},
		{"no payload", nil, daily, "UTC", nil},
		{"a pointer", &orderPlaced{}, daily, "UTC", nil},
		{"a payload too large", orderPlaced{strings.Repeat("x", bus.DefaultMaxPayload)}, daily, "UTC", nil},
		{"a bad expression", orderPlaced{}, "0 0 25 * * *", "UTC", nil},
		{"no expression", orderPlaced{}, "", "UTC", nil},
		{"a bad zone", orderPlaced{}, daily, "Europe/Nowhere", nil},
		{"a time that never comes", orderPlaced{}, "0 0 0 30 2 *", "UTC", nil},
		{"an option that is nil", orderPlaced{}, daily, "UTC", []schedule.Option{nil}},
		{"a name too long", orderPlaced{}, daily, "UTC", []schedule.Option{schedule.Name(strings.Repeat("x", bus.MaxKey+1))}},
		{"a tag with a NUL", orderPlaced{}, daily, "UTC", []schedule.Option{schedule.Tag("a\x00")}},
		{"a header without a name", orderPlaced{}, daily, "UTC", []schedule.Option{schedule.Header("", "x")}},
		{"a bad zone and a bad tag", orderPlaced{}, daily, "Nowhere", []schedule.Option{schedule.Tag("\xff")}},
	}
	for _, test := range tests {
		// The real one needs a database for the time; what it refuses it refuses
		// before, except for a time that never comes.
		_, want := real.ScheduleAnother(t.Context(), nil, test.payload, test.expression, test.zone, test.options...)
		_, got := fake.ScheduleAnother(t.Context(), nil, test.payload, test.expression, test.zone, test.options...)
		switch {
		case test.name == "a time that never comes":
			if !errors.Is(got, schedule.ErrExpression) {
				t.Errorf("%s: got %v, want ErrExpression", test.name, got)
			}
		case want == nil || got == nil || got.Error() != want.Error():
			t.Errorf("%s: got %v, want the real scheduler's error: %v", test.name, got, want)
		}
	}
	if rows, _ := fake.List(t.Context(), nil, schedule.Filter{}); len(rows) != 0 {
		t.Errorf("list: got %v, want nothing kept of what was refused", rows)
	}
	changes := map[string]func(scheduling) error{
		"update to a bad expression": func(s scheduling) error { return s.UpdateSchedule(t.Context(), nil, 1, "x", "UTC") },
		"update to a bad payload":    func(s scheduling) error { return s.UpdatePayload(t.Context(), nil, 1, orderShipped{}) },
		"delete by no tag":           func(s scheduling) error { _, err := s.DeleteByTag(t.Context(), nil, ""); return err },
		"delete by a bad tag":        func(s scheduling) error { _, err := s.DeleteByTag(t.Context(), nil, "\x00"); return err },
	}
	for name, change := range changes {
		if got, want := change(fake), change(real); got == nil || want == nil || got.Error() != want.Error() {
			t.Errorf("%s: got %v, want the real scheduler's error: %v", name, got, want)
		}
	}
}

func TestSchedulesAreCopies(t *testing.T) {
	t.Parallel()
	s := new(bustest.FakeScheduler)
	if _, err := s.ScheduleAnother(t.Context(), nil, orderPlaced{"1"}, "@daily", "UTC"); err != nil {
		t.Fatal(err)
	}
	rows, _ := s.List(t.Context(), nil, schedule.Filter{})
	rows[0].Name = "changed"
	if again, _ := s.List(t.Context(), nil, schedule.Filter{}); slices.ContainsFunc(again, func(r schedule.Schedule) bool { return r.Name != "" }) {
		t.Errorf("list: got %+v, want it unchanged", again)
	}
}
