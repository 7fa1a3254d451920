package engine

import (
	"testing"
	"time"
)

// TestGroupsSetAsideAreForgotten: another process may have ended them.
func TestGroupsSetAsideAreForgotten(t *testing.T) {
	t.Parallel()
	s := groupSweeper{aside: map[string]time.Time{"past": time.Now().Add(-3 * groupAside), "next": time.Now().Add(time.Minute)}}
	if fired, err := s.fireAll(t.Context(), []string{"next"}); fired != 0 || err != nil {
		t.Fatalf("got %d groups ended and error %v, want neither", fired, err)
	}
	if _, ok := s.aside["next"]; !ok || len(s.aside) != 1 {
		t.Errorf("set aside: got %v, want the next one only", s.aside)
	}
}
