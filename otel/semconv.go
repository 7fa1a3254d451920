package otel

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// Only this file depends on the version of the semantic conventions. They are in development: a
// minor release of this library may adopt changed names.
const (
	scope     = "github.com/asyncmonolith/asyncmonolith-go/otel"
	schemaURL = semconv.SchemaURL
	system    = "asyncmonolith" // messaging.system, and the prefix of the library's own names
)

// Operations, as span names and in messaging.operation.name.
const (
	opCreate  = "create"
	opSend    = "send"
	opFire    = "fire" // a schedule creates a message
	opProcess = "process"
	opPublish = "publish" // to a broker
	opApply   = "apply"   // of events, by a projection
	opReceive = "receive"
)

// Attributes of the conventions.
const (
	batchCountKey  = semconv.MessagingBatchMessageCountKey
	destinationKey = semconv.MessagingDestinationNameKey
	errorTypeKey   = semconv.ErrorTypeKey
	groupKey       = semconv.MessagingConsumerGroupNameKey
	messageIDKey   = semconv.MessagingMessageIDKey
)

// Attributes of the library.
const (
	attemptKey    attribute.Key = system + ".message.attempt"
	crashesKey    attribute.Key = system + ".message.crashes"
	lagKey        attribute.Key = system + ".delivery.lag"
	limitNameKey  attribute.Key = system + ".limit.name"
	linkKey       attribute.Key = system + ".link.type"
	modeKey       attribute.Key = system + ".message.mode"
	outcomeKey    attribute.Key = system + ".message.outcome"
	recordKey     attribute.Key = system + ".record.outcome"
	queueStateKey attribute.Key = system + ".queue.state"
	versionKey    attribute.Key = system + ".reader.version"
)

// Metrics of the conventions.
const (
	consumedMessages  = "messaging.client.consumed.messages"
	operationDuration = "messaging.client.operation.duration"
	processDuration   = "messaging.process.duration"
	sentMessages      = "messaging.client.sent.messages"
)

// operation returns the attributes that identify a span or measurement. The destination is the
// payload type; empty means several.
func operation(name, destination string) []attribute.KeyValue {
	attributes := []attribute.KeyValue{
		semconv.MessagingSystemKey.String(system),
		semconv.MessagingOperationName(name),
	}
	if destination != "" {
		attributes = append(attributes, destinationKey.String(destination))
	}
	return attributes
}

func operationType(name string) attribute.KeyValue {
	switch name {
	case opSend, opPublish:
		return semconv.MessagingOperationTypeSend
	case opProcess, opApply:
		return semconv.MessagingOperationTypeProcess
	case opReceive:
		return semconv.MessagingOperationTypeReceive
	}
	return semconv.MessagingOperationTypeCreate
}
