// Package contract describes what a registry stores and reads: its payloads as JSON Schema, and the
// names and aliases of payloads, consumers and events. It finds what a deploy would break between
// two descriptions, and makes an AsyncAPI document of them.
package contract
