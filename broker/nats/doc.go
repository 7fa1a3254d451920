// Package nats publishes records to NATS JetStream and subscribes to them, for packages relay and
// inbox. It is a module of its own, so that the library depends on no broker. It has the name of
// NATS's own client: import it as amnats.
//
// It creates no streams and no consumers, and closes no connection: the application does. A stream
// must acknowledge what is published; [Publisher.Check] reports whether it does. The stream's
// replicas and the servers' sync_interval decide how durable an acknowledged record is.
//
// A record is a message. Its attributes are headers with the prefix "ce-", percent-encoded as
// CloudEvents does for HTTP. Its ID is Nats-Msg-Id: JetStream drops a message whose id it received
// within the stream's duplicate window. Headers that NATS cannot carry unchanged are
// percent-encoded, under names that begin with "asyncmonolith-".
package nats
