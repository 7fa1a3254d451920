package bustest

import (
	"context"
	"runtime"
	"strings"
	"sync"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/steps"
)

// Steps returns a context in which outbox.Step works without a Processor, for a test that calls a consumer's
// function itself. Each call of the returned function begins another attempt at the same message: what is
// stored stays stored.
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

// CrashAfterStep runs the oldest due message as [Kit.ProcessNext] does, and loses the process right after
// outbox.Step has stored the result of the named step: the consumer goes no further and its outcome does
// not count. The clock moves on by the lease, and another process recovers the message, with one crash
// counted. The next ProcessNext resumes it. The test fails if the message does not reach the step.
func (k *Kit) CrashAfterStep(step string, consumers ...string) {
	k.t.Helper()
	crashed := false
	k.crash = func(stored string) {
		if stored == step {
			crashed = true
			runtime.Goexit()
		}
	}
	defer func() { k.crash = nil }()
	k.repeat = func(ctx context.Context, _ *bus.Message, _ bus.Handler, err error) error {
		if crashed {
			k.loseClaims(ctx)
		}
		return err
	}
	defer func() { k.repeat = nil }()
	if k.ProcessNext(consumers...); !crashed {
		k.t.Fatalf("bustest: CrashAfterStep(%q): the message ran without storing that step", step)
	}
}
