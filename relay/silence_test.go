package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// keyed is a forwarder with one destination and a circuit, whose publisher leaves some keys unanswered.
type keyed struct {
	*silences
	outbox.Circuit
	consumer bus.Consumer
}

func newKeyed(silent ...string) *keyed {
	k := &keyed{silences: &silences{silent: make(map[string]bool), sent: make(map[string]int)}}
	for _, key := range silent {
		k.silent["orders/"+key] = true
	}
	k.consumer = relay.NewForwarder("c", k, relay.Config{Source: "/shop", Circuit: &k.Circuit,
		Routes: []relay.Route{relay.To[placed]("orders")}})
	return k
}

// Publish returns a minute late if the first key is s.
func (k *keyed) Publish(ctx context.Context, records []broker.Record) []error {
	errs := k.silences.Publish(ctx, records)
	if records[0].Key == "s" {
		<-time.After(time.Minute)
	}
	return errs
}

// batch publishes a message of each key a second after the last batch, and checks their outcome and the circuit.
func (k *keyed) batch(t *testing.T, keys string, open bool, want ...bus.Outcome) {
	t.Helper()
	<-time.After(time.Second)
	var batch []*bus.Message
	for _, key := range keys {
		batch = append(batch, &bus.Message{PayloadType: "order.placed", Payload: []byte(`{}`), OrderingKey: string(key)})
	}
	errs := access.ConsumeBatch(t.Context(), k.consumer, bus.JSON{}, batch)
	errs = append(errs, make([]error, len(batch)-len(errs))...)
	for i := range batch {
		if got := bus.OutcomeOf(errs[i]).Outcome; got != want[min(i, len(want)-1)] {
			t.Errorf("batch %s, message %d: got %s (%v), want %s", keys, i, got, errs[i], want[min(i, len(want)-1)])
		}
	}
	if _, reason, got := k.Tripped(); got != open {
		t.Errorf("circuit after batch %s: got open %v (%v), want %v", keys, got, reason, open)
	}
}

// TestAnUnansweredKeyAloneInItsBatchesDelaysNoOthers: at low traffic each batch is one message.
// Promise: relay-destination
func TestAnUnansweredKeyAloneInItsBatchesDelaysNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed("a", "c", "d")
		for range 30 {
			k.batch(t, "aa", false, bus.Snoozed)
		}
		k.batch(t, "b", false, bus.Done)
		k.batch(t, "c", false, bus.Snoozed)
		k.batch(t, "b", false, bus.Done)
		<-time.After(time.Minute)
		k.batch(t, "ac", false, bus.Snoozed) // keys that were silent while another was answered come due together
		k.batch(t, "d", false, bus.Snoozed)
		k.batch(t, "b", false, bus.Done)
	})
}

// TestTwoUnansweredKeysOpenTheCircuit, and each probe is another message, until one of another key is answered.
// Promise: relay-destination
func TestTwoUnansweredKeysOpenTheCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed("a", "c", "d")
		k.batch(t, "a", false, bus.Snoozed)
		k.batch(t, "c", true, bus.Snoozed)
		k.batch(t, "d", true, bus.Snoozed) // probes
		k.batch(t, "a", true, bus.Snoozed)
		k.batch(t, "b", false, bus.Done)
		k.batch(t, "b", false, bus.Done)
		<-time.After(time.Minute)
		k.batch(t, "ac", false, bus.Snoozed)
		k.batch(t, "b", false, bus.Done)
	})
}

// TestAKeyThatWasSilentBeforeClosesTheCircuit: as a probe it says nothing about the destination, and others may wait behind it.
func TestAKeyThatWasSilentBeforeClosesTheCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed("a", "c", "d")
		k.batch(t, "a", false, bus.Snoozed)
		k.batch(t, "b", false, bus.Done)
		k.batch(t, "cd", true, bus.Released)
		k.batch(t, "a", false, bus.Snoozed)
		k.batch(t, "b", false, bus.Done)
	})
}

// TestALateAnswerClosesTheCircuit: the call began before the circuit opened.
func TestALateAnswerClosesTheCircuit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed("a", "c")
		go k.batch(t, "s", false, bus.Done)
		<-time.After(10 * time.Second)
		synctest.Wait()
		k.batch(t, "ac", true, bus.Released)
		<-time.After(2 * time.Minute)
		if _, reason, open := k.Tripped(); open {
			t.Errorf("circuit after an answer: got it open (%v), want it closed", reason)
		}
	})
}

// TestAnOutageWritesNothingToBatchesOfKeys: only a probe is snoozed.
func TestAnOutageWritesNothingToBatchesOfKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newKeyed("a", "b", "c", "d")
		k.batch(t, "abcd", true, bus.Released)
		k.batch(t, "a", true, bus.Snoozed)
		clear(k.silent)
		k.Reset() // as once a reconnect is noticed
		k.batch(t, "abcd", false, bus.Done)
	})
}
