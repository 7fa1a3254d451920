// Package broker is the brokers that relays are measured with: JetStream on NATS servers, each a
// process of its own that keeps what it has in files, and RabbitMQ, as scripts/with-rabbitmq.sh
// starts it. All settings that decide how durable a record is are the defaults.
//
// It measures nothing, that is package measure.
package broker
