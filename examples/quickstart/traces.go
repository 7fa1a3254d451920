package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// printTraces draws spans as trees: a span hangs under its parent, or, when it
// began a trace of its own, under the span that it links to.
func printTraces(out io.Writer, spans tracetest.SpanStubs) {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	known := make(map[trace.SpanID]bool, len(spans))
	for _, s := range spans {
		known[s.SpanContext.SpanID()] = true
	}
	children := make(map[trace.SpanID][]tracetest.SpanStub)
	for _, s := range spans {
		above := s.Parent.SpanID()
		if !known[above] {
			above = trace.SpanID{}
			for _, link := range s.Links {
				if known[link.SpanContext.SpanID()] {
					above = link.SpanContext.SpanID()
				}
			}
		}
		children[above] = append(children[above], s)
	}
	fmt.Fprintln(out, "\ntraces:")
	printSpans(out, children, trace.SpanID{}, 0)
}

func printSpans(out io.Writer, children map[trace.SpanID][]tracetest.SpanStub, above trace.SpanID, depth int) {
	for _, s := range children[above] {
		var notes []string
		for _, key := range []attribute.Key{"messaging.consumer.group.name", "asyncmonolith.message.attempt", "asyncmonolith.message.outcome"} {
			for _, a := range s.Attributes {
				if a.Key == key {
					notes = append(notes, a.Value.String())
				}
			}
		}
		if above.IsValid() && s.Parent.SpanID() != above {
			notes = append(notes, "linked")
		}
		if depth == 0 && len(children[s.SpanContext.SpanID()]) == 0 {
			notes = append(notes, "nothing came of it: a duplicate, or rolled back")
		}
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("  %s%s  %s", strings.Repeat("  ", depth), s.Name, strings.Join(notes, ", ")), " "))
		printSpans(out, children, s.SpanContext.SpanID(), depth+1)
	}
}
