// Package otel traces and measures AsyncMonolith with OpenTelemetry. Import it
// as amotel, since every program that needs it imports OpenTelemetry's own otel,
// too.
//
// A [Telemetry] is made once and hands out one layer for each chain: spans and
// metrics then follow a message from the code that produced it to the consumer
// that ran it, through the message's headers, across processes, retries and
// schedules. [Telemetry.Apply] does so for the projections of an event log. Names are
// those of the OpenTelemetry semantic conventions for messaging, v1.43;
// docs/observability.md lists every span, metric and attribute.
//
// It does not set up an SDK, export anything or log, and it never reads a payload.
package otel
