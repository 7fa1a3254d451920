package ops_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
	"github.com/asyncmonolith/asyncmonolith-go/internal/operator"
	"github.com/asyncmonolith/asyncmonolith-go/ops"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// nothing is a broker that no record reaches.
type nothing struct{}

func (nothing) Publish(context.Context, []broker.Record) []error { return nil }
func (nothing) Subscribe(ctx context.Context, _ func(context.Context, []broker.Record) error) error {
	<-ctx.Done()
	return nil
}

// TestProcessorsReportTheirPayloads, so that they can be shown without the program.
func TestProcessorsReportTheirPayloads(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		receiver := inbox.NewReceiver("from-shop", nothing{}, inbox.Accept[order]("shop.order"))
		a := testapp.New(t, db, testapp.Consumed("ship", bus.PayloadAliases("old.order")), receiver.Consumer(),
			relay.NewForwarder("out", nothing{}, relay.Config{Source: "/shop", Routes: []relay.Route{relay.To[refund]("refunds/all")}}))
		s := operator.As(serviceOf(t, db, a.Registry), someone(ops.Viewer))
		schemas := func(name string) []operator.PayloadSchema {
			return testapp.Must[[]operator.PayloadSchema](t)(s.Consumers().Schemas(t.Context(), name))
		}
		if got := schemas("ship"); len(got) != 0 {
			t.Errorf("before a processor runs: got %v, want none", got)
		}
		a.Start(testapp.Fast())
		testapp.Eventually(t, "the processor has reported", func() bool { return len(schemas("ship")) == 1 })
		got := schemas("ship")[0]
		if got.PayloadType != "order.placed" || got.Version != 1 || !strings.Contains(string(got.Schema), `"id"`) {
			t.Errorf("got %s, schema %d: %s", got.PayloadType, got.Version, got.Schema)
		}
		reported := testapp.Must[[]byte](t)(s.AsyncAPI(t.Context(), "Shop", "1"))
		own := testapp.Must[[]byte](t)(contract.AsyncAPI("Shop", "1", contract.Of(a.Registry)))
		if string(own) != string(reported) {
			t.Errorf("got from the database\n%s\nand from the registry\n%s", reported, own)
		}
		var doc struct {
			Operations map[string]struct{ Action string }
			Channels   map[string]struct{ Address *string }
		}
		testapp.OK(t, json.Unmarshal(reported, &doc))
		for name, action := range map[string]string{"ship": "receive", "receive_from-shop": "receive", "out.refunds_all": "send"} {
			if doc.Operations[name].Action != action {
				t.Errorf("operation %s: got %q, want %s; all: %v", name, doc.Operations[name].Action, action, doc.Operations)
			}
		}
		if address := doc.Channels["refunds_all"].Address; address == nil || *address != "refunds/all" {
			t.Errorf("channel of refunds: got %v, want its address", address)
		}
	})
}
