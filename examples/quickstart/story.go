package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/uptrace/bun"
)

// Story prints what happens, and counts it, so that the next step can wait for it.
type Story struct {
	out   io.Writer
	begun time.Time

	mu       sync.Mutex
	happened map[string]int
	changed  chan struct{} // closed and replaced at every mark
}

func newStory(out io.Writer) *Story {
	return &Story{out: out, begun: time.Now(), happened: make(map[string]int), changed: make(chan struct{})}
}

// tell prints one line.
func (s *Story) tell(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%5.2fs  %-16s  %s\n", time.Since(s.begun).Seconds(), who, fmt.Sprintf(format, args...))
}

// mark notes that something happened once more.
func (s *Story) mark(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.happened[what]++
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait waits until something has happened so many times, or ctx ends.
func (s *Story) wait(ctx context.Context, what string, times int) error {
	for {
		s.mu.Lock()
		n, changed := s.happened[what], s.changed
		s.mu.Unlock()
		if n >= times {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s happened %d times, expected %d: %w", what, n, times, ctx.Err())
		}
	}
}

// printEnd shows what is left in the tables.
func (s *Story) printEnd(ctx context.Context, db *bun.DB) error {
	waiting, err := db.NewSelect().Table("consumer_messages").Count(ctx)
	if err != nil {
		return err
	}
	poisoned, err := db.NewSelect().Table("poisoned_messages").Count(ctx)
	if err != nil {
		return err
	}
	var order Order
	if err := db.NewSelect().Model(&order).Where("id = ?", "o-1").Scan(ctx); err != nil {
		return err
	}
	fmt.Fprintf(
		s.out, "\nat the end: order %s reserved: %t, messages waiting: %d, poisoned: %d\n", order.ID, order.Reserved, waiting,
		poisoned,
	)
	return nil
}
