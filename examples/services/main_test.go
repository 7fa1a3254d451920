package main

import (
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/asyncmonolith/asyncmonolith-go/examples/services/orders"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/service"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/shipping"
)

func TestMain(m *testing.M) {
	if service.FromEnv().Name != "" { // the test binary is a service
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// TestEachOrderIsShippedOnce runs the whole story, in which shipping is killed.
func TestEachOrderIsShippedOnce(t *testing.T) {
	databases := map[string]string{"sqlite": ""}
	if postgres := os.Getenv("ASYNCMONOLITH_TEST_POSTGRES"); postgres != "" {
		databases["postgres"] = postgres
	}
	for name, postgres := range databases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			var out strings.Builder
			end, err := run(t.Context(), &out, postgres)
			if err != nil {
				t.Fatalf("run: %v; the story:\n%s", err, out.String())
			}
			checkEnding(t, end)
			if !strings.Contains(out.String(), "KILLED (SIGKILL)") {
				t.Errorf("story: got %s, want shipping killed", out.String())
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left behind: got %v, %v, want nothing", left, err)
			}
		})
	}
}

func checkEnding(t *testing.T, end ending) {
	t.Helper()
	got := [...]int{end.placed, end.records, end.shipments, end.once, end.never, end.moreOften}
	if want := [...]int{orders.Total, orders.Total, orders.Total, orders.Total, 0, 0}; got != want {
		t.Errorf("orders, records, shipments, shipped once, never, more often: got %v, want %v", got, want)
	}
	if again := end.deliveries - end.records; again < shipping.Batch {
		t.Errorf("delivered again: got %d, want the %d that were not acknowledged", again, shipping.Batch)
	}
	if s := end.sample; s.broken > 0 || s.whole < orders.Total-shipping.Batch || s.whole > orders.Total {
		t.Errorf("traces: got %d whole and %d others, want all whole, but for spans that were lost with their process", s.whole, s.broken)
	}
	chain := end.sample.chain
	var services, names []string
	for i, span := range chain {
		services, names = append(services, span.Service), append(names, named(span))
		if span.Trace != chain[0].Trace || i > 0 && span.Parent != chain[i-1].ID {
			t.Errorf("span %s: got parent %q of trace %s, want %+v", span.Name, span.Parent, span.Trace, chain[0])
		}
	}
	if got, want := strings.Join(services, ", "), "orders, orders, orders, shipping"; got != want || chain[0].Parent != "" {
		t.Errorf("trace: got spans of %s, %q, want %s", got, names, want)
	}
	received := end.sample.received
	if len(received) != 2 || received[0].Process == received[1].Process {
		t.Errorf("received: got %+v, want it once by the process that was killed, and once by its successor", received)
	}
}
