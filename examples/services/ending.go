package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/asyncmonolith/asyncmonolith-go/examples/services/orders"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/service"
	"github.com/asyncmonolith/asyncmonolith-go/examples/services/shipping"
)

// ending is what is left in the databases and at the broker.
type ending struct {
	placed, records, deliveries       int
	shipments, once, never, moreOften int
	sample                            sample
}

// lookAtTheEnd compares the two databases.
func lookAtTheEnd(ctx context.Context, b *broker, d *databases, spans []service.Span) (end ending, err error) {
	var placed, shipped []string
	if err := d.orders.NewSelect().Model((*orders.Order)(nil)).Column("id").Scan(ctx, &placed); err != nil {
		return end, err
	}
	if err := d.shipping.NewSelect().Model((*shipping.Shipment)(nil)).Column("order_id").Scan(ctx, &shipped); err != nil {
		return end, err
	}
	if end.records, end.deliveries, _, err = b.counts(ctx); err != nil {
		return end, err
	}
	end.placed, end.shipments = len(placed), len(shipped)
	times := make(map[string]int)
	for _, id := range shipped {
		times[id]++
	}
	for _, id := range placed {
		switch times[id] {
		case 0:
			end.never++
		case 1:
			end.once++
		default:
			end.moreOften++
		}
	}
	end.sample, err = pick(spans)
	return end, err
}

func (end ending) print(out io.Writer, d *databases) {
	fmt.Fprintf(out, "\norders placed       %4d   in the %s of orders\n", end.placed, d.kind())
	fmt.Fprintf(out, "records             %4d   at the broker\n", end.records)
	fmt.Fprintf(
		out, "deliveries          %4d   %d of them again, after the kill: shipping knew them, and dropped them\n", end.deliveries,
		end.deliveries-end.records,
	)
	fmt.Fprintf(out, "shipments           %4d   in the SQLite of shipping\n", end.shipments)
	fmt.Fprintf(out, "orders shipped once %4d   never: %d, more often: %d\n", end.once, end.never, end.moreOften)
	fmt.Fprintf(
		out,
		"whole traces        %4d   from the customer to the shipment; others: %d. What the killed process had no time to tell of is missing\n",
		end.sample.whole, end.sample.broken,
	)
	end.sample.print(out)
}

// sample is one order's trace.
type sample struct {
	whole    int            // traces that go from the customer to the shipment
	broken   int            // spans of shipments that are in no such trace
	chain    []service.Span // of one of them, each the parent of the next
	received []service.Span // the batches in which shipping got it: traces of their own, which link to the chain
}

// pick counts traces that are whole, and looks for an order that was delivered twice.
func pick(spans []service.Span) (best sample, err error) {
	byID := make(map[string]service.Span)
	for _, s := range spans {
		byID[s.ID] = s
	}
	for _, s := range spans {
		if s.Consumer != "ship" {
			continue
		}
		found := sample{chain: []service.Span{s}}
		for parent, ok := byID[s.Parent]; ok; parent, ok = byID[parent.Parent] {
			found.chain = append([]service.Span{parent}, found.chain...)
		}
		if found.chain[0].Order == "" {
			best.broken++
			continue
		}
		best.whole++
		for _, r := range spans {
			if r.Consumer == "from-orders" && slices.Contains(r.Links, s.Parent) {
				found.received = append(found.received, r)
			}
		}
		if len(found.received) > len(best.received) {
			best.chain, best.received = found.chain, found.received
		}
	}
	if best.chain == nil {
		return best, fmt.Errorf("no trace goes over both services, of %d spans", len(spans))
	}
	return best, nil
}

func (s sample) print(out io.Writer) {
	fmt.Fprintf(out, "\norder %s, trace %s:\n", s.chain[0].Order, s.chain[0].Trace)
	fmt.Fprintf(out, "  %-16s  %-16s  %-8s  %-7s  %s\n", "span", "parent", "service", "process", "name")
	for _, span := range s.chain {
		fmt.Fprintf(out, "  %-16s  %-16s  %-8s  %-7d  %s\n", span.ID, span.Parent, span.Service, span.Process, named(span))
	}
	fmt.Fprintf(
		out, "\nshipping received it %d times, in batches with traces of their own that link to %s:\n", len(s.received),
		s.chain[len(s.chain)-2].ID,
	)
	for _, span := range s.received {
		fmt.Fprintf(out, "  %-16s  %-16s  %-8s  %-7d  %s\n", span.ID, "", span.Service, span.Process, span.Name)
	}
}

func named(s service.Span) string {
	if s.Consumer == "" {
		return s.Name
	}
	return s.Name + " (" + s.Consumer + ")"
}
