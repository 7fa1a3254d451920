package bus_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

func TestWhatABatchReturnsIsSpread(t *testing.T) {
	bad, worse := errors.New("bad"), errors.New("worse")
	for name, test := range map[string]struct {
		returned error
		want     string
	}{
		"nil":                 {nil, "[<nil> <nil> <nil>]"},
		"everybody's":         {bad, "[bad bad bad]"},
		"each its own":        {bus.BatchError{0: bad, 2: worse, 1: nil}, "[bad <nil> worse]"},
		"none":                {bus.BatchError{}, "[<nil> <nil> <nil>]"},
		"wrapped":             {fmt.Errorf("index: %w", bus.BatchError{1: bad}), "[<nil> bad <nil>]"},
		"joined with another": {errors.Join(bus.BatchError{1: bad}, worse), "everybody's"},
		"out of range":        {bus.BatchError{3: bad}, "everybody's"},
	} {
		c := bus.ConsumeBatch("c", func(context.Context, []orderPlaced) error { return test.returned })
		batch := []*bus.Message{{Payload: []byte("{}")}, {Payload: []byte("{}")}, {Payload: []byte("{}")}}
		errs := access.ConsumeBatch(t.Context(), c, bus.JSON{}, batch)
		if test.want == "everybody's" {
			for i := range errs {
				if errs[i] == nil || !errors.Is(errs[i], bad) {
					t.Errorf("%s: got %v for payload %d, want an error", name, errs[i], i)
				}
			}
		} else if got := fmt.Sprint(errs); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestAPayloadThatCannotBeReadIsNotInTheBatch(t *testing.T) {
	bad := errors.New("bad")
	c := bus.ConsumeBatch("c", func(ctx context.Context, orders []orderPlaced) error {
		if len(orders) != 2 || len(bus.BatchFromContext(ctx)) != 2 {
			return errors.New("want two")
		}
		return bus.BatchError{1: bad}
	})
	batch := []*bus.Message{{Payload: []byte("{}")}, {Payload: []byte("no")}, {Payload: []byte("{}")}}
	errs := access.ConsumeBatch(t.Context(), c, bus.JSON{}, batch)
	decode := &bus.DecodeError{}
	if errs[0] != nil || !errors.As(errs[1], &decode) || errs[2] != bad {
		t.Errorf("got %v, want the second unreadable, and the last bad", errs)
	}
	if c.Config().BatchSize != 100 {
		t.Errorf("BatchSize: got %d, want 100", c.Config().BatchSize)
	}
}

func TestDeclaredConsumersGetMessagesAndAreNotRun(t *testing.T) {
	own := bus.Consume("own", ignore[orderPlaced], bus.Aliases("former"))
	registry := mustRegister(t, bus.Declare[orderPlaced]("other"), bus.Declare[orderPlaced]("other"), bus.Declare[orderPlaced]("own"),
		bus.Declare[orderPlaced]("former"), bus.Declare[orderShipped]("other"), own)
	var names []string
	for _, c := range access.ConsumersOf(registry, "order.placed") {
		names = append(names, c.Name())
	}
	if got := strings.Join(names, " "); got != "own other" || len(registry.Consumers()) != 1 ||
		len(access.ConsumersOf(registry, "order.shipped")) != 1 {
		t.Errorf("got %q for orders, and %d to run, want own other, and one", got, len(registry.Consumers()))
	}
	for want, consumers := range map[string][]bus.Consumer{
		"is declared with": {own, bus.Declare[orderShipped]("own")},
		`name ""`:          {bus.Declare[orderPlaced]("")},
	} {
		if _, err := bus.NewRegistry(consumers...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// TestNothingBehindAnUnreadablePayloadIsInTheCall, of its key: the others are, and all of them are
// if the consumer has no order.
func TestNothingBehindAnUnreadablePayloadIsInTheCall(t *testing.T) {
	for want, options := range map[string][]bus.ConsumerOption{"a0 b2 5": {bus.Ordered(bus.BlockKey)}, "a0 b2 a3 a4 5": nil} {
		var got []string
		c := bus.ConsumeBatch("c", func(ctx context.Context, _ []orderPlaced) error {
			for _, m := range bus.BatchFromContext(ctx) {
				got = append(got, fmt.Sprint(m.OrderingKey, m.Attempt))
			}
			return nil
		}, options...)
		batch := []*bus.Message{{OrderingKey: "a"}, {OrderingKey: "a"}, {OrderingKey: "b"}, {OrderingKey: "a"}, {OrderingKey: "a"}, {}}
		for i, m := range batch {
			m.Attempt, m.Payload = i, []byte("{}") // the attempt tells which it is
		}
		batch[1].Payload = []byte("no")
		errs := access.ConsumeBatch(t.Context(), c, bus.JSON{}, batch)
		if strings.Join(got, " ") != want {
			t.Errorf("got %v in the call, want %s", got, want)
		}
		if decode := (&bus.DecodeError{}); !errors.As(errs[1], &decode) {
			t.Errorf("got %v for the unreadable one, want it to be said", errs[1])
		}
		behind := bus.Done
		if options != nil {
			behind = bus.Released
		}
		for i, outcome := range map[int]bus.Outcome{0: bus.Done, 2: bus.Done, 3: behind, 4: behind, 5: bus.Done} {
			if got := bus.OutcomeOf(errs[i]).Outcome; got != outcome {
				t.Errorf("payload %d: got %v, want %v", i, got, outcome)
			}
		}
	}
}
