package relay

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
)

// record makes a record from a message.
func (p *publishing) record(ctx context.Context, codec bus.Codec, m *bus.Message) (broker.Record, error) {
	r := p.routes[m.PayloadType]
	if r == nil && m.Config != nil {
		r = p.routes[access.NewestName(m.Config, m.PayloadType)]
	}
	if r == nil {
		return broker.Record{}, fmt.Errorf(
			"relay: no route for payload type %q: name it with relay.PayloadAliases, if it is a former name", m.PayloadType,
		)
	}
	to, err := r.resolve(ctx, codec, m)
	if err != nil {
		return broker.Record{}, err
	}
	names := cloudevents.JoinNames(p.recipients(m))
	e := cloudevents.Event{Attributes: map[string]string{
		"specversion": cloudevents.SpecVersion, "id": m.ID.String(), "source": p.config.Source, "type": r.public,
	}, ContentType: p.config.ContentType, Data: to.payload}
	if !m.CreatedAt.IsZero() {
		e.Attributes["time"] = m.CreatedAt.UTC().Format(time.RFC3339Nano)
	}
	e.Set("partitionkey", cloudevents.Printable(to.key))
	e.Set(cloudevents.ConsumersAttribute, names)
	if m.Event != nil {
		e.Set("subject", cloudevents.Printable(m.Event.Stream))
		if m.Event.Position > 0 { // unknown for an event that was just recorded
			e.Set("sequence", fmt.Sprintf("%019d", m.Event.Position))
		}
	}
	e.Set("dataschema", r.schema)
	if to.schema > 1 {
		e.Set(cloudevents.SchemaAttribute, strconv.Itoa(to.schema))
	}
	e.Set("traceparent", cloudevents.Printable(m.Headers["traceparent"]))
	e.Set("tracestate", cloudevents.Printable(m.Headers["tracestate"]))
	record := broker.Record{ContentType: e.ContentType, Attributes: e.Attributes, Body: e.Data}
	if p.config.Structured {
		body, err := e.JSON()
		if err != nil {
			return broker.Record{}, bus.Permanent(fmt.Errorf("relay: %w", err))
		}
		record = broker.Record{ContentType: cloudevents.Structured, Body: body}
	}
	record.Destination, record.Key, record.Headers = to.destination, to.key, cloudevents.Outgoing(m.Headers)
	// Brokers drop records with a known id, even for another destination. Message ids are unique
	// only within their source: two services may forward one event to one destination, with relays
	// of the same name.
	record.ID = m.ID.String() + "/" + cloudevents.Hash(p.config.Source, to.destination) + "/" + url.PathEscape(p.name)
	if names != "" {
		record.ID += "/" + names
	}
	return record, nil
}

// wrote reports whether a record of a log event is of this forwarder.
func (p *publishing) wrote(id string) bool { return strings.HasSuffix(id, "/"+url.PathEscape(p.name)) }

// recipients are the consumers of a message; none means all. An alias that is not one of them is a
// former name of the forwarder.
func (p *publishing) recipients(m *bus.Message) []string {
	if slices.Contains(p.config.Recipients, m.ConsumerAlias) && m.ConsumerAlias != p.name {
		return []string{m.ConsumerAlias}
	}
	return p.config.Recipients
}
