package bustest_test

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type orderPlaced struct {
	ID string `json:"id"`
}

func (orderPlaced) PayloadType() string { return "order.placed" }

type orderShipped struct {
	ID string `json:"id"`
}

func (orderShipped) PayloadType() string { return "order.shipped" }

func newRegistry(t *testing.T) *bus.Registry {
	t.Helper()
	registry, err := bus.NewRegistry(
		bus.Consume("ship", func(context.Context, orderPlaced) error { return nil }),
		bus.Consume("thank", func(context.Context, orderPlaced) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	return registry
}

// recorder is a testing.TB that notes the failure it is told of.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper()           {}
func (r *recorder) Output() io.Writer { return io.Discard }

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf runs fn and returns how it failed, "" if it did not.
func failureOf(t *testing.T, fn func(t testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(r)
	}()
	<-done
	return r.failure
}

// wantFailure checks that fn fails the test with a message that has all the parts.
func wantFailure(t *testing.T, fn func(t testing.TB), parts ...string) {
	t.Helper()
	got := failureOf(t, fn)
	for _, part := range parts {
		if got == "" || !strings.Contains(got, part) {
			t.Errorf("failure: got %q, want it to say %q", got, part)
		}
	}
}
