package testapp

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Virtual runs a test on virtual time: a real SQLite database and a real
// processor in a bubble in which waiting costs nothing. The database takes its
// time from the bubble's clock.
func Virtual(t *testing.T, test func(t *testing.T, ctx context.Context, newApp func(...bus.Consumer) *App)) {
	t.Helper()
	t.Parallel()
	path := t.TempDir() + "/test.db"
	synctest.Test(t, func(t *testing.T) {
		ctx := store.WithClock(context.WithoutCancel(t.Context()), time.Now)
		test(t, ctx, func(consumers ...bus.Consumer) *App {
			return New(t, testdb.OpenSQLite(t, path), consumers...)
		})
	})
}

// Sooner polls on virtual time, where an hour passes in an instant.
func Sooner(t *testing.T, what string, condition func() bool) {
	t.Helper()
	Poll(t, what, time.Hour, 250*time.Millisecond, condition)
}

// Moments records instants from several goroutines.
type Moments struct {
	mu   sync.Mutex
	list []time.Time
}

// Add records this instant.
func (m *Moments) Add() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.list = append(m.list, time.Now())
}

// Len is how many there are.
func (m *Moments) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.list)
}

// At is one of them, counted from 0.
func (m *Moments) At(i int) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.list[i]
}
