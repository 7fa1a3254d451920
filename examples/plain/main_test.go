package main

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stopAfter is an output that ends the program after so many lines.
type stopAfter struct {
	lines int
	stop  func()
}

func (s *stopAfter) Write(line []byte) (int, error) {
	if s.lines--; s.lines == 0 {
		s.stop()
	}
	return len(line), nil
}

func TestPlainBeatsAndStops(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out := &stopAfter{lines: 2, stop: stop}
	if err := run(ctx, filepath.Join(t.TempDir(), "plain.db"), out); err != nil || out.lines > 0 {
		t.Errorf("got %v with %d lines to go, want two beats and a clean stop", err, out.lines)
	}
}

func TestPlainSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), filepath.Join(t.TempDir(), "missing", "plain.db"), &stopAfter{})
	if err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the database's error", err)
	}
}
