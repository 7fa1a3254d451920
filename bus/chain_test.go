package bus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

func TestComposePutsTheFirstLayerOutermost(t *testing.T) {
	t.Parallel()
	var got []string
	layer := func(name string) bus.Middleware {
		return func(next bus.Handler) bus.Handler {
			got = append(got, "compose "+name)
			return func(ctx context.Context, m *bus.Message) error {
				got = append(got, "enter "+name)
				err := next(ctx, m)
				got = append(got, "leave "+name)
				return err
			}
		}
	}
	failure := errors.New("failed")
	handler := bus.Compose(func(context.Context, *bus.Message) error { got = append(got, "handler"); return failure },
		layer("first"), layer("second"), layer("third"))
	assertNames(t, "at composition", got, []string{"compose third", "compose second", "compose first"})
	want := []string{"enter first", "enter second", "enter third", "handler", "leave third", "leave second", "leave first"}
	for range 2 {
		got = nil
		if err := handler(t.Context(), &bus.Message{}); err != failure {
			t.Errorf("got error %v, want %v", err, failure)
		}
		assertNames(t, "at a message", got, want)
	}
}

func TestComposeSendPutsTheFirstLayerOutermost(t *testing.T) {
	t.Parallel()
	var got []string
	layer := func(name string) bus.ProduceMiddleware {
		return func(next bus.ProduceFunc) bus.ProduceFunc {
			return func(ctx context.Context, b *bus.Batch) error {
				got = append(got, "enter "+name)
				defer func() { got = append(got, "leave "+name) }()
				return next(ctx, b)
			}
		}
	}
	send := access.ComposeProduce(func(context.Context, *bus.Batch) error { got = append(got, "insert"); return nil }, layer("first"),
		layer("second"))
	if err := send(t.Context(), &bus.Batch{Messages: []*bus.Message{{}, {}}}); err != nil {
		t.Errorf("got error %v, want none", err)
	}
	assertNames(t, "layers", got, []string{"enter first", "enter second", "insert", "leave second", "leave first"})
}

func TestComposeWithoutLayersIsTheHandler(t *testing.T) {
	t.Parallel()
	ran := 0
	if err := bus.Compose(func(context.Context, *bus.Message) error { ran++; return nil })(t.Context(), nil); err != nil {
		t.Errorf("Compose: got error %v, want none", err)
	}
	if err := access.ComposeProduce(func(context.Context, *bus.Batch) error { ran++; return nil })(t.Context(), nil); err != nil {
		t.Errorf("a chain: got error %v, want none", err)
	}
	if ran != 2 {
		t.Errorf("got %d calls, want 2", ran)
	}
}

func TestTheEndOfAChainComesWithWhatIsSent(t *testing.T) {
	t.Parallel()
	left := []*bus.Message{{PayloadType: "a"}, {PayloadType: "b"}, {PayloadType: "c"}}
	forget := func(next bus.ProduceFunc) bus.ProduceFunc { // the context, and a message
		return func(_ context.Context, b *bus.Batch) error {
			b.Messages = slices.DeleteFunc(b.Messages, func(m *bus.Message) bool { return m.PayloadType == "b" })
			return next(context.Background(), b)
		}
	}
	var written []string
	err := access.RunProduce(t.Context(), access.ComposeProduce(nil, forget), left, func(_ context.Context, messages []*bus.Message) error {
		for _, m := range messages {
			written = append(written, m.PayloadType)
		}
		return nil
	})
	if err != nil || !slices.Equal(written, []string{"a", "c"}) || left[1] == nil || left[2] == nil {
		t.Errorf("send: got %v, %v and %v left, want a and c, and the sender's own messages untouched", err, written, left)
	}
	copies := func(next bus.Handler) bus.Handler {
		return func(_ context.Context, m *bus.Message) error {
			other := *m
			return next(context.Background(), &other)
		}
	}
	ran := 0
	err = access.Deliver(t.Context(), bus.Compose(nil, copies), &bus.Message{Consumer: "c"}, func(_ context.Context, m *bus.Message) error {
		ran++
		return nil
	})
	if err != nil || ran != 1 {
		t.Errorf("deliver: got %v and %d runs, want one", err, ran)
	}
}

func TestAChainRefusesWhatALayerHasMadeItself(t *testing.T) {
	t.Parallel()
	other := func(next bus.ProduceFunc) bus.ProduceFunc {
		return func(ctx context.Context, b *bus.Batch) error { return next(ctx, &bus.Batch{Messages: b.Messages}) }
	}
	err := access.RunProduce(t.Context(), access.ComposeProduce(nil, other), nil, func(context.Context, []*bus.Message) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "a batch of its own") {
		t.Errorf("send: got %v, want an error that says so", err)
	}
	err = access.Deliver(t.Context(), bus.Compose(nil, func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, _ *bus.Message) error { return next(ctx, &bus.Message{}) }
	}), &bus.Message{}, func(context.Context, *bus.Message) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "a message of its own") {
		t.Errorf("deliver: got %v, want an error that says so", err)
	}
}

func TestEachMessage(t *testing.T) {
	t.Parallel()
	failure := errors.New("no tenant")
	tests := []struct {
		name      string
		batch     []string // payload types
		wantSeen  []string
		wantSent  []string // nil: the batch does not go on
		wantError error
	}{
		{"every message is seen, then the batch goes on", []string{"a", "b", "c"}, []string{"a", "b", "c"}, []string{"a+", "b+", "c+"}, nil},
		{"the first error stops the batch", []string{"a", "bad", "c"}, []string{"a", "bad"}, nil, failure},
		{"an error at the last message stops the batch", []string{"a", "bad"}, []string{"a", "bad"}, nil, failure},
		{"an empty batch goes on", nil, nil, []string{}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var seen, sent []string
			stamp := bus.PerMessage(func(_ context.Context, m *bus.Message) error {
				seen = append(seen, m.PayloadType)
				if m.PayloadType == "bad" {
					return failure
				}
				m.PayloadType += "+"
				return nil
			})
			send := stamp(func(_ context.Context, b *bus.Batch) error {
				sent = []string{}
				for _, m := range b.Messages {
					sent = append(sent, m.PayloadType)
				}
				return nil
			})
			var batch []*bus.Message
			for _, payloadType := range test.batch {
				batch = append(batch, &bus.Message{PayloadType: payloadType})
			}
			if err := send(t.Context(), &bus.Batch{Messages: batch}); err != test.wantError {
				t.Errorf("got error %v, want %v", err, test.wantError)
			}
			if !slices.Equal(seen, test.wantSeen) || !slices.Equal(sent, test.wantSent) || (sent == nil) != (test.wantSent == nil) {
				t.Errorf("got %q seen and %q sent, want %q and %q", seen, sent, test.wantSeen, test.wantSent)
			}
		})
	}
}

func TestEachMessageReturnsTheInsertError(t *testing.T) {
	t.Parallel()
	failure := errors.New("insert failed")
	pass := bus.PerMessage(func(context.Context, *bus.Message) error { return nil })
	send := pass(func(context.Context, *bus.Batch) error { return failure })
	if err := send(t.Context(), &bus.Batch{}); err != failure {
		t.Errorf("got error %v, want %v", err, failure)
	}
}

type contextKey string

func TestCurrentIsFoundInEveryChildOfTheContext(t *testing.T) {
	t.Parallel()
	message := &bus.Message{Consumer: "send-receipt"}
	ctx := bus.ContextWithMessage(context.WithValue(t.Context(), contextKey("outer"), 1), message)
	timeout, cancelTimeout := context.WithTimeout(ctx, time.Hour)
	defer cancelTimeout()
	cancelled, cancel := context.WithCancelCause(ctx)
	cancel(errors.New("done"))
	tests := []struct {
		name string
		ctx  context.Context
	}{
		{"the context itself", ctx},
		{"a child with a value", context.WithValue(ctx, contextKey("inner"), 2)},
		{"a child with a timeout", timeout},
		{"a grandchild", context.WithValue(timeout, contextKey("inner"), 2)},
		{"a cancelled child", cancelled},
		{"a child that is not cancelled with it", context.WithoutCancel(cancelled)},
	}
	for _, test := range tests {
		if got, ok := bus.MessageFromContext(test.ctx); !ok || got != message {
			t.Errorf("%s: got %p, %t, want %p", test.name, got, ok, message)
		}
		if got := test.ctx.Value(contextKey("outer")); got != 1 {
			t.Errorf("%s: got value %v of the outer context, want 1", test.name, got)
		}
		if got := test.ctx.Value(contextKey("unknown")); got != nil {
			t.Errorf("%s: got value %v for an unknown key, want nil", test.name, got)
		}
	}
}

func TestCurrentOutsideOfAHandler(t *testing.T) {
	t.Parallel()
	if got, ok := bus.MessageFromContext(context.WithValue(t.Context(), contextKey("a"), &bus.Message{})); ok || got != nil {
		t.Errorf("got %v, %t, want no message", got, ok)
	}
}

func TestCurrentIsTheInnermostMessage(t *testing.T) {
	t.Parallel()
	outer, inner := &bus.Message{Consumer: "outer"}, &bus.Message{Consumer: "inner"}
	outerCtx := bus.ContextWithMessage(t.Context(), outer)
	innerCtx := bus.ContextWithMessage(context.WithValue(outerCtx, contextKey("a"), 1), inner)
	if got, _ := bus.MessageFromContext(innerCtx); got != inner {
		t.Errorf("inside: got %v, want the inner message", got)
	}
	if got, _ := bus.MessageFromContext(outerCtx); got != outer {
		t.Errorf("outside: got %v, want the outer message", got)
	}
}

func TestWithMessagePassesCancellationOn(t *testing.T) {
	t.Parallel()
	parent, cancelParent := context.WithCancelCause(t.Context())
	ctx := bus.ContextWithMessage(parent, &bus.Message{})
	child, cancelChild := context.WithTimeout(ctx, time.Hour)
	defer cancelChild()
	if ctx.Err() != nil || child.Err() != nil {
		t.Fatalf("before: got %v and %v, want live contexts", ctx.Err(), child.Err())
	}
	cancelParent(bus.ErrStopping)
	for name, c := range map[string]context.Context{"the context": ctx, "its child": child} {
		select {
		case <-c.Done():
		default:
			t.Errorf("%s: not done at once, want the parent's cancellation passed on", name)
		}
		if c.Err() != context.Canceled || context.Cause(c) != bus.ErrStopping {
			t.Errorf("%s: got %v, cause %v, want %v, %v", name, c.Err(), context.Cause(c), context.Canceled, bus.ErrStopping)
		}
	}
}

func TestWithMessagePassesTheDeadlineOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithTimeoutCause(t.Context(), time.Minute, bus.ErrTimeout)
		defer cancel()
		ctx := bus.ContextWithMessage(parent, &bus.Message{})
		start := time.Now()
		if got, ok := ctx.Deadline(); !ok || !got.Equal(start.Add(time.Minute)) {
			t.Errorf("Deadline: got %v, %t, want a minute from %v", got, ok, start)
		}
		<-ctx.Done()
		if got := time.Since(start); got != time.Minute || context.Cause(ctx) != bus.ErrTimeout {
			t.Errorf("done after %s, cause %v, want 1m0s, %v", got, context.Cause(ctx), bus.ErrTimeout)
		}
	})
}

// A context type that hides its parent from package context costs a goroutine
// for every child; the bubble would not end with one left behind.
func TestWithMessageStartsNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, cancel := context.WithCancel(context.Background())
		ran := false
		context.AfterFunc(bus.ContextWithMessage(parent, &bus.Message{}), func() { ran = true })
		if ran {
			t.Error("AfterFunc ran before the cancellation")
		}
		_ = cancel // never called: the child must not be waiting for it
	})
}

func TestContextPrintsNoPayload(t *testing.T) {
	t.Parallel()
	ctx := bus.ContextWithMessage(t.Context(), &bus.Message{Headers: map[string]string{"card": canary}})
	child := context.WithValue(ctx, contextKey("a"), 1)
	for _, text := range []string{fmt.Sprintf("%v", ctx), fmt.Sprintf("%+v", ctx), fmt.Sprintf("%v", child), fmt.Sprintf("%s", child)} {
		if strings.Contains(text, canary) {
			t.Errorf("got %q, want nothing of the message in it", text)
		}
	}
}
