package relay_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/inbox"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
)

// crate is a payload as applications have it.
type crate struct {
	ID       string `json:"id"`
	Quantity int    `json:"quantity"`
}

func (crate) PayloadType() string { return "crate" }

// broker delivers each record in a batch of its own.
type once struct {
	records []broker.Record
	done    chan struct{}
}

func (b *once) Subscribe(ctx context.Context, fn func(context.Context, []broker.Record) error) error {
	for _, r := range b.records {
		if err := fn(ctx, []broker.Record{r}); err != nil {
			return err
		}
	}
	close(b.done)
	<-ctx.Done()
	return nil
}

// odd is what became of the records that a receiver of crates had.
type odd struct {
	runs     []crate
	poisoned []string
	inbox.Stats
}

func receive(t *testing.T, records []broker.Record, options ...inbox.Option) (o odd) {
	t.Helper()
	b := &once{records, make(chan struct{})}
	receiver := inbox.NewReceiver("from", b, append(options, inbox.Accept[crate]())...)
	var n atomic.Int64
	runs := make(chan crate, len(records))
	a := testapp.New(t, testdb.SQLite(t), receiver.Consumer(), bus.Consume("ship", func(_ context.Context, p crate) error {
		n.Add(1)
		runs <- p
		return nil
	}))
	runner := testapp.Must[*inbox.Runner](t)(inbox.NewRunner(a.DB, a.Registry, a.Producer,
		inbox.RunnerConfig{Logger: slog.New(slog.DiscardHandler)}, receiver))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()
	<-b.done
	p := a.Start(testapp.Fast())
	testapp.Eventually(t, "done", a.Empty)
	stats := testapp.Must[[]inbox.Stats](t)(runner.Stats(t.Context()))
	cancel()
	<-ended
	p.MustStop()
	close(runs)
	for r := range runs {
		o.runs = append(o.runs, r)
	}
	for _, r := range a.Poisoned() {
		o.poisoned = append(o.poisoned, r.ConsumerType)
	}
	o.Stats = stats[0]
	return o
}

// TestForeignEventsOfASharedTopicAreIgnored: of types that the receiver does not accept it is no concern how they are written.
func TestForeignEventsOfASharedTopicAreIgnored(t *testing.T) {
	foreign := func(pairs ...string) broker.Record {
		return broker.Record{Destination: "shop", ContentType: "application/json",
			Attributes: attributes(append([]string{"type", "com.example.other"}, pairs...)...), Body: []byte(`{}`)}
	}
	for name, r := range map[string]broker.Record{
		"plain":                              foreign(),
		"binary, ce_correlationId":           foreign("correlationId", "1"),
		"binary, ce_trace-id":                foreign("trace-id", "1"),
		"structured, camel case":             structured(`{"specversion":"1.0","id":"1","source":"/s","type":"com.example.other","correlationId":"1","data":{}}`),
		"structured, an object as extension": structured(`{"specversion":"1.0","id":"1","source":"/s","type":"com.example.other","routing":{"route":"x"},"data":{}}`),
		"structured, an array as extension":  structured(`{"specversion":"1.0","id":"1","source":"/s","type":"com.example.other","tags":["x"],"data":{}}`),
		"structured, $schema":                structured(`{"$schema":"https://example.com/e.json","specversion":"1.0","id":"1","source":"/s","type":"com.example.other","data":{}}`),
		"structured, 0.3":                    structured(`{"specversion":"0.3","id":"1","source":"/s","type":"com.example.other","data":{}}`),
		"structured, data and data_base64":   structured(`{"specversion":"1.0","id":"1","source":"/s","type":"com.example.other","data":{},"data_base64":"e30="}`),
	} {
		t.Run(name, func(t *testing.T) {
			o := receive(t, []broker.Record{r})
			if o.Ignored != 1 || o.Parked != 0 || len(o.poisoned) != 0 {
				t.Errorf("got unknown %d, parked %d, poisoned %v, want unknown 1 and nothing poisoned", o.Ignored, o.Parked, o.poisoned)
			}
		})
	}
}

func structured(body string) broker.Record {
	return broker.Record{Destination: "crates", ContentType: "application/cloudevents+json", Body: []byte(body)}
}

func attributes(pairs ...string) map[string]string {
	m := map[string]string{"specversion": "1.0", "id": "1", "source": "/s", "type": "crate"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// TestNullDataIsPoisoned: an event whose data is null has none, and its consumer does not run with a zero payload.
func TestNullDataIsPoisoned(t *testing.T) {
	for _, c := range []struct {
		name    string
		record  broker.Record
		options []inbox.Option
	}{
		{"structured", structured(`{"specversion":"1.0","id":"1","source":"/s","type":"crate","data":null}`), nil},
		{"structured, with its type", structured(`{"specversion":"1.0","id":"1","source":"/s","type":"crate","datacontenttype":"application/json","data":null}`), nil},
		{"binary", broker.Record{ContentType: "application/json", Attributes: attributes(), Body: []byte("null")}, nil},
		{"structured, text", structured(`{"specversion":"1.0","id":"1","source":"/s","type":"crate","datacontenttype":"text/plain","data":null}`), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := receive(t, []broker.Record{c.record}, c.options...)
			if len(o.runs) != 0 || len(o.poisoned) != 1 || o.poisoned[0] != "receive:from" {
				t.Errorf("got runs %+v, poisoned %v, want no run, and 1 poisoned under receive:from", o.runs, o.poisoned)
			}
		})
	}
	t.Run("data null beside data_base64", func(t *testing.T) {
		o := receive(t, []broker.Record{structured(`{"specversion":"1.0","id":"1","source":"/s","type":"crate","data":null,"data_base64":"eyJpZCI6Ing2In0="}`)})
		if len(o.runs) != 1 || o.runs[0].ID != "x6" {
			t.Errorf("got runs %+v, poisoned %v, want the data in base64 taken, as data_base64 null beside data is", o.runs, o.poisoned)
		}
	})
}

// TestANullIsIgnored: a compacted topic has one for a removed key.
func TestANullIsIgnored(t *testing.T) {
	o := receive(t, []broker.Record{{Destination: "outbox.event.crate", Key: "1"}})
	if o.Ignored != 1 || len(o.poisoned) != 0 {
		t.Errorf("got unknown %d, poisoned %v, want unknown 1 and nothing poisoned", o.Ignored, o.poisoned)
	}
}
