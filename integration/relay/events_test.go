package relay_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/relay"
)

// opened is an event that was called account.made, and had no owner but a name.
type opened struct {
	Owner string `json:"owner"`
}

func (opened) PayloadType() string { return "account.opened" }

// TestEventsArePublished: with their stream as key, in their newest form, also those that were
// recorded under a former name, and messages beside them.
func TestEventsArePublished(t *testing.T) {
	t.Parallel()
	testdb.EachWithEvents(t, func(t *testing.T, db *bun.DB) {
		b := newBroker()
		to := relay.NewForwarder("to-broker", b,
			relay.Config{Source: shop, Routes: []relay.Route{relay.To[opened]("accounts", relay.DataSchema("urn:shop:account.opened:2")),
				relay.To[order]("orders")}})
		types := testapp.Must[*eventlog.Types](t)(eventlog.NewTypes(eventlog.Event[opened](eventlog.Schema(2),
			eventlog.PayloadAliases("account.made"),
			eventlog.Upcaster(1, func(_ context.Context, text []byte) ([]byte, error) {
				var old struct{ Name string }
				if err := json.Unmarshal(text, &old); err != nil {
					return nil, err
				}
				return json.Marshal(opened{Owner: old.Name})
			}))))
		a := testapp.New(t, db)
		a.Registry = testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Events: types}.NewRegistry(to))
		a.Producer = testapp.Must[*outbox.Producer](t)(outbox.NewProducer(a.Registry, outbox.ProducerConfig{}))
		log := testapp.Must[*eventlog.Log](t)(eventlog.NewLog(a.Registry, a.Producer, eventlog.LogConfig{}))
		for _, stream := range []string{"account-1", "account-2"} {
			err := a.Producer.RunInTx(t.Context(), db, func(ctx context.Context, tx bun.Tx) error {
				return testapp.Second(log.Append(ctx, tx, stream, eventlog.NoStream, opened{Owner: "ann"}))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		a.Exec(`UPDATE events SET event_type = 'account.made', schema = 1, data = '{"Name":"bob"}' WHERE stream = 'account-2'`)
		a.Exec(`UPDATE consumer_messages SET payload_type = 'account.made' WHERE id = (SELECT MAX(id) FROM consumer_messages)`)
		a.Produce(order{ID: "1"})
		a.Start(testapp.Fast())
		testapp.Eventually(t, "all are published", func() bool { return len(b.all()) == 3 && a.Empty() })
		records := make(map[string]broker.Record)
		for _, r := range b.all() {
			records[r.Key] = r
		}
		for stream, body := range map[string]string{"account-1": `{"owner":"ann"}`, "account-2": `{"owner":"bob"}`} {
			r := records[stream]
			if string(r.Body) != body || r.Destination != "accounts" || r.Attributes["type"] != "account.opened" ||
				r.Attributes["subject"] != stream || r.Attributes["partitionkey"] != stream {
				t.Errorf("%s: got %+v with %s, want the event", stream, r, r.Body)
			}
		}
		if got := records["account-1"].Attributes["dataschema"]; got != "urn:shop:account.opened:2" {
			t.Errorf("dataschema: got %q, want the route's", got)
		}
		if r := records[""]; r.Destination != "orders" || r.Attributes["subject"] != "" || r.Attributes["dataschema"] != "" {
			t.Errorf("message: got %+v, want no attributes of an event", r)
		}
	})
}
