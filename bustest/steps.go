package bustest

import (
	"context"
	"strings"
	"sync"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/steps"
)

// Steps returns a function that makes contexts in which outbox.Step works without a Processor, for
// a test that calls a consumer's function itself. Each call begins another attempt at the same
// message: what is stored stays stored. Results are encoded as JSON.
func Steps(ctx context.Context) (attempt func() context.Context) {
	m := new(memory)
	n := 0
	return func() context.Context {
		n++
		return context.WithValue(ctx, steps.Key{}, steps.New(m, bus.JSON{}, n))
	}
}

// memory has the steps of one message.
type memory struct {
	mu   sync.Mutex
	text strings.Builder
}

// Live implements steps.Storage.
func (m *memory) Live() bool { return true }

// Load implements steps.Storage.
func (m *memory) Load(context.Context) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.text.String(), nil
}

// Append implements steps.Storage.
func (m *memory) Append(_ context.Context, line string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.text.WriteString(line)
	return nil
}
