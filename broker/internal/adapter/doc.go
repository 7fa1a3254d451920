// Package adapter is what the adapters of brokers share: the headers of records, the pauses after
// failures, and the detection of outages. It uses no broker's client. The adapters are modules of
// their own; they may import it since their paths are below that of package broker, which is the only
// package of the project that it imports.
package adapter
