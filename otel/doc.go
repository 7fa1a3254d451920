// Package otel traces and measures AsyncMonolith with OpenTelemetry. Import it as amotel, because
// programs that use it also import OpenTelemetry's own otel.
//
// A [Telemetry] is made once and has one layer for each chain. Spans and metrics then follow a
// message from its producer to its consumer, through the message's headers, across processes,
// retries and schedules. [Telemetry.Apply] traces and measures projections. Names follow the
// OpenTelemetry semantic conventions for messaging, v1.43; docs/reference/metrics.md lists every span,
// metric and attribute.
//
// It does not set up an SDK, export anything or log, and it never reads a payload.
package otel
