package inbox

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

type placed struct {
	ID string `json:"id"`
}

func (placed) PayloadType() string { return "order.placed" }

type other struct{}

func (other) PayloadType() string { return "other" }

type subscriber struct{}

func (subscriber) Subscribe(ctx context.Context, _ func(context.Context, []broker.Record) error) error {
	<-ctx.Done()
	return nil
}

// This test is internal: NewRunner needs a database for what check says without one.

func TestMistakesOfReceiversAreReportedTogether(t *testing.T) {
	t.Parallel()
	var sub subscriber
	accept := Accept[placed]()
	tests := map[string]Receiver{
		"the name is empty":              NewReceiver("", sub, accept),
		"the subscriber is nil":          NewReceiver("r", nil, accept),
		"accepts no type":                NewReceiver("r", sub),
		"DeduplicationWindow 1s":         NewReceiver("r", sub, accept, DeduplicationWindow(time.Second)),
		"MaxBacklog 0":                   NewReceiver("r", sub, accept, MaxBacklog(0)),
		"option 1 is nil":                NewReceiver("r", sub, accept, nil),
		"MapRecord: the function is nil": NewReceiver("r", sub, accept, MapRecord(nil)),
		"accepted already":               NewReceiver("r", sub, accept, accept),
		"Accept of *inbox":               NewReceiver("r", sub, Accept[*placed]()),
		"no consumer is registered":      NewReceiver("r", sub, Accept[other]()),
		`AppendToLog("a-b"): a category`: NewReceiver("r", sub, accept, AppendToLog("a-b")),
		"already appends to the log":     NewReceiver("r", sub, accept, AppendToLog("a"), AppendPartitionsToLog("b")),
	}
	for want, receiver := range tests {
		if err := check(t, receiver, receiver.Consumer()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if err := check(t, NewReceiver("r", sub, accept)); err == nil || !strings.Contains(err.Error(), "is not in the registry") {
		t.Errorf("not registered: got %v, want an error", err)
	}
	if _, err := bus.NewRegistry(NewReceiver(strings.Repeat("r", 248), sub, accept).Consumer()); err == nil {
		t.Error("a name of 248 bytes: got no error, want one")
	}
	if _, err := NewRunner(nil, nil, nil, RunnerConfig{}); err == nil {
		t.Error("no database: got no error, want one")
	}
}

// check returns what NewRunner would say of a receiver beside a consumer of its payload.
func check(t *testing.T, receiver Receiver, consumers ...bus.Consumer) error {
	t.Helper()
	consumers = append(consumers, bus.Consume("c", func(context.Context, placed) error { return nil }))
	registry, err := bus.NewRegistry(consumers...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.For(dialect.PG, registry.Tables())
	if err != nil {
		t.Fatal(err)
	}
	return receiver.receiver.check(registry, s, nil)
}
