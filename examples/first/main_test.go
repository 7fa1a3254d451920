package main

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stopping is an output that ends the program after the second line.
type stopping struct {
	mu    sync.Mutex
	lines []string
	stop  func()
}

func (s *stopping) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, string(line))
	if len(s.lines) == 2 {
		s.stop()
	}
	return len(line), nil
}

// TestFirstConsumesItsOrder runs the program until it stops itself, and again for a second order.
func TestFirstConsumesItsOrder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "shop.db")
	for range 2 {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		out := &stopping{stop: stop}
		if err := run(ctx, path, out); err != nil || len(out.lines) != 2 {
			t.Fatalf("got %q and error %v, want two lines and a clean stop", out.lines, err)
		}
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var orders, reserved int
	if err := db.QueryRow("SELECT count(*), sum(reserved) FROM orders").Scan(&orders, &reserved); err != nil {
		t.Fatal(err)
	}
	if orders != 2 || reserved != 2 {
		t.Errorf("got %d orders, %d of them reserved, want 2 and 2", orders, reserved)
	}
}
