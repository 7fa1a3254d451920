// Package broker is the contract between relays and brokers: what a record is, what a [Publisher] and a [Subscriber]
// do, and which errors say what becomes of a message. Packages relay and the adapters below this one stand on it;
// package brokertest has the tests that every adapter passes. Write an adapter of your own with these two.
package broker
