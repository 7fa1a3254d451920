package outbox

import (
	"testing"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

func TestProducersSayForWhomTheyWrite(t *testing.T) {
	r := routes{began: time.Now()}
	consumers := []bus.Consumer{bus.Declare[testPayload]("a"), bus.Declare[testPayload]("b")}
	if got := r.list("test", consumers); got != nil {
		t.Errorf("at once: got %q, want nothing", got)
	}
	r.began = r.began.Add(-routesEvery)
	if got := r.list("test", consumers); len(got) != 2 {
		t.Errorf("after a minute: got %q, want both", got)
	}
	if got := r.list("test", consumers); got != nil {
		t.Errorf("once more: got %q, want nothing for a minute", got)
	}
}

type testPayload struct{}

func (testPayload) PayloadType() string { return "test" }
