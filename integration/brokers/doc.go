// Package brokers starts real brokers for tests, on loopback: NATS servers and, as a fake of
// Kafka, kfake, each as a process of its own, which is the test's own program run again; and it
// finds the RabbitMQ that scripts/with-rabbitmq.sh has started.
//
// A test's TestMain calls [Main] first. What is started is gone when the test ends, or its process.
// The benchmarks, which are a program, do the same with [LaunchNATS].
package brokers
