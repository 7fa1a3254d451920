// Package relay publishes messages and events of one service to a broker, so that other services
// receive them. Package inbox receives them there. Package broker defines the interface to brokers;
// the packages below it are adapters.
//
// [NewForwarder] makes a consumer that publishes messages. Register it like any other; messages
// that it cannot publish yet stay in the outbox. Forwarded messages are not ordered. To keep the
// order of the event log, publish it with [NewLogForwarder].
//
// Records are CloudEvents 1.0 events.
package relay
