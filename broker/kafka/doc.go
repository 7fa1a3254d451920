// Package kafka publishes records to Kafka and subscribes to them, for packages relay and inbox. It
// is a module of its own, so that the library depends on no broker.
//
// It creates no topics. A publish succeeds once all in-sync replicas have the record; the topic's
// min.insync.replicas decides how durable that is. Kafka does not drop a record that is published
// again: the receiver does.
//
// A record's key is Key, its value is Body, and a nil Body is a tombstone. Attributes are headers
// with the prefix "ce_", as in CloudEvents; the content type is the header content-type. Fields
// that Kafka does not have are headers that begin with "asyncmonolith-". The package is tested with
// a fake that speaks Kafka's protocol and replicates nothing.
package kafka
