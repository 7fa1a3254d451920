package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// story prints what happens, and knows when everything has happened.
type story struct {
	out   io.Writer
	begun time.Time

	mu    sync.Mutex
	open  int // messages whose last run is still to come
	ended chan struct{}
}

// messages is how many messages the quickstart produces; one ends poisoned.
const messages = 5

func newStory(out io.Writer) *story {
	return &story{out: out, begun: time.Now(), open: messages, ended: make(chan struct{})}
}

// tell prints one line.
func (s *story) tell(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%5.2fs  %-16s  %s\n", time.Since(s.begun).Seconds(), who, fmt.Sprintf(format, args...))
}

// ran notes the end of a run; the last run of the last message ends the story.
func (s *story) ran(m *bus.Message, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && m.Attempt < m.Config.MaxAttempts {
		return
	}
	if s.open--; s.open == 0 {
		close(s.ended)
	}
}

func (s *story) wait(patience time.Duration) {
	select {
	case <-s.ended:
	case <-time.After(patience):
	}
}

// printEnd shows what is left in the tables.
func (s *story) printEnd(ctx context.Context, db *bun.DB) error {
	waiting, err := db.NewSelect().Table("consumer_messages").Count(ctx)
	if err != nil {
		return err
	}
	var order Order
	if err := db.NewSelect().Model(&order).Where("id = ?", "o-1").Scan(ctx); err != nil {
		return err
	}
	var poisoned []struct {
		ConsumerType string
		Attempts     int
		Reason       string
	}
	if err := db.NewSelect().Table("poisoned_messages").Column("consumer_type", "attempts", "reason").Scan(ctx, &poisoned); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "\nat the end: order %s reserved: %t, messages waiting: %d\n", order.ID, order.Reserved, waiting)
	for _, p := range poisoned {
		fmt.Fprintf(s.out, "poisoned:   %s (%s)\n", p.ConsumerType, p.Reason)
	}
	return nil
}
