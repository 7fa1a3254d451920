package bustest_test

import (
	"fmt"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/bustest"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

func TestRequireSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	p, s := new(bustest.FakeProducer), bustest.Schedules(nil)
	wantFailure(t, func(t testing.TB) { bustest.RequireProduced[orderPlaced](t, p, nil) },
		"bustest: RequireProduced[bustest_test.orderPlaced]: got none, want one; produced: nothing")
	wantFailure(t, func(t testing.TB) { bustest.RequireScheduled[orderPlaced](t, s, nil) },
		"bustest: RequireScheduled[bustest_test.orderPlaced]: got none, want one; schedules: nothing")
	for i := range 12 {
		if _, err := p.Produce(t.Context(), nil, orderPlaced{fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	s = append(s, schedule.Schedule{PayloadType: "order.placed", Payload: []byte(`{"id":"1"}`), Expression: "@daily", Zone: "UTC"})
	none := func(orderPlaced) bool { return false }
	wantFailure(t, func(t testing.TB) { bustest.RequireProduced(t, p, none) },
		"got none that matches, want one; produced: order.placed {ID:0}; order.placed {ID:1}", "and 2 more")
	wantFailure(t, func(t testing.TB) { bustest.RequireProduced[orderShipped](t, p, nil) }, `produced: order.placed {"id":"0"}`)
	wantFailure(t, func(t testing.TB) { bustest.RequireScheduled(t, s, none) },
		`got none that matches, want one; schedules: order.placed {"id":"1"} at "@daily" UTC`)
	wantFailure(t, func(t testing.TB) { bustest.RequireScheduled[orderShipped](t, s, nil) }, "got none, want one")
	wantFailure(t, func(t testing.TB) {
		bustest.RequireNotProduced(t, p, func(o orderPlaced) bool { return o.ID == "3" })
	}, "bustest: RequireNotProduced[bustest_test.orderPlaced]: got {ID:3} (message 00000000-0000-7000-8000-000000000004), want none that matches")
	if got := failureOf(t, func(t testing.TB) {
		bustest.RequireNotProduced(t, p, none)
		bustest.RequireNotProduced[orderShipped](t, p, nil)
	}); got != "" {
		t.Errorf("nothing produced that matches: got the failure %q, want none", got)
	}
}

func TestRequireNamesATypeThatIsNoPayload(t *testing.T) {
	t.Parallel()
	p := new(bustest.FakeProducer)
	wantFailure(t, func(t testing.TB) { bustest.RequireProduced[*orderPlaced](t, p, nil) },
		"RequireProduced[*bustest_test.orderPlaced]: a payload is a struct, not a ptr")
	wantFailure(t, func(t testing.TB) { bustest.RequireNotProduced[bus.Payload](t, p, nil) }, "not a interface")
}

func TestRequireSaysWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	p := new(bustest.FakeProducer)
	if err := p.Send(t.Context(), nil, &bus.Message{PayloadType: "order.placed", Payload: []byte(`{"id":1}`)}); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, func(t testing.TB) { bustest.RequireProduced[orderPlaced](t, p, nil) }, `decode {"id":1}: json: cannot unmarshal`)
}
