package engine

import (
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"
)

// TestGroupsSetAsideAreForgotten: another process may have ended them.
func TestGroupsSetAsideAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := groupSweeper{aside: map[string]groupWait{"past": {until: now.Add(-3 * mostAside)}, "next": {until: now.Add(time.Minute)}}}
	if fired, err := s.fireAll(t.Context(), []string{"next"}); fired != 0 || err != nil {
		t.Fatalf("got %d groups ended and error %v, want neither", fired, err)
	}
	if _, ok := s.aside["next"]; !ok || len(s.aside) != 1 {
		t.Errorf("set aside: got %v, want the next one only", s.aside)
	}
}

// TestTheWaitOfAGroupSetAsideGrows from a second to a minute, and groups that were not tried before come first.
func TestTheWaitOfAGroupSetAsideGrows(t *testing.T) {
	t.Parallel()
	s := groupSweeper{aside: map[string]groupWait{}, config: &ProcessorConfig{Logger: slog.New(slog.DiscardHandler)}}
	refused := errors.New("refused")
	var waits []time.Duration
	for range 8 {
		if err := s.setAside(t.Context(), "held", refused); err != refused {
			t.Fatalf("error: got %v, want that of the try", err)
		}
		waits = append(waits, s.aside["held"].wait)
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if !slices.Equal(waits, want) {
		t.Errorf("waits: got %v, want %v", waits, want)
	}
	names := []string{"held", "late", "new"}
	s.aside["late"] = groupWait{until: time.Now().Add(-time.Second)}
	if fresh, again := s.due(names, time.Now()); !slices.Equal(fresh, []string{"new"}) || !slices.Equal(again, []string{"late"}) {
		t.Errorf("groups to try: got %v and again %v, want new and again late", fresh, again)
	}
}
