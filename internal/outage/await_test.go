package outage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

func TestAwaitWaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	down, wrong := fmt.Errorf("down: %w", syscall.ECONNREFUSED), errors.New("wrong")
	tests := []struct {
		name     string
		patience time.Duration
		check    func(after time.Duration) error
		want     error
		least    time.Duration
		most     time.Duration
	}{
		{"no patience", 0, func(time.Duration) error { return down }, down, 0, 0},
		{"comes up", time.Minute, func(after time.Duration) error {
			if after < 10*time.Second {
				return down
			}
			return nil
		}, nil, 10 * time.Second, 14 * time.Second},
		{"accepts and hangs", time.Minute, func(after time.Duration) error {
			if after < 10*time.Second {
				return fmt.Errorf("check: %w", context.DeadlineExceeded)
			}
			return nil
		}, nil, 10 * time.Second, 14 * time.Second},
		{"stays down", time.Minute, func(time.Duration) error { return down }, down, 55 * time.Second, time.Minute},
		{"answers something wrong", time.Minute, func(time.Duration) error { return wrong }, wrong, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := outage.Await(t.Context(), test.patience, slog.New(slog.DiscardHandler),
					func(context.Context) error { return test.check(time.Since(start)) })
				if took := time.Since(start); !errors.Is(err, test.want) || took < test.least || took > test.most {
					t.Errorf("got %v after %s, want %v after %s to %s", err, took, test.want, test.least, test.most)
				}
			})
		})
	}
}

// TestAwaitLogsErrorsCut has the check fail with one of some megabytes.
func TestAwaitLogsErrorsCut(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	long := fmt.Errorf("%s: %w", strings.Repeat("x", 5<<20), syscall.ECONNREFUSED)
	_ = outage.Await(t.Context(), time.Minute, slog.New(slog.NewTextHandler(&log, nil)), func(context.Context) error {
		if log.Len() > 0 {
			return nil
		}
		return long
	})
	if log.Len() == 0 || log.Len() > 40<<10 {
		t.Errorf("log: got %d bytes, want a line of some KB", log.Len())
	}
}
