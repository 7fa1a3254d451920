package adapter

import (
	"iter"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
)

// Names of headers for what a protocol has no place for.
const (
	OwnPrefix       = "asyncmonolith-"
	IDHeader        = OwnPrefix + "id"
	KeyHeader       = OwnPrefix + "key"
	TombstoneHeader = OwnPrefix + "tombstone" // a body that is nil, not empty
	HeaderPrefix    = OwnPrefix + "h-"        // before a name that would mean something else
)

// Wire is how the headers of a protocol carry the attributes and headers of records.
type Wire struct {
	// Attributes are prefixes of attributes: the first is written, all are read.
	Attributes []string
	// ContentType is the header of the content type, empty if the protocol has another place for it.
	ContentType string
	// Keyed says that the protocol has a place for keys, and bodies that are nil.
	Keyed bool
	// Reserved reports whether another name means something to the broker. Nil for none.
	Reserved func(name string) bool
}

// Write calls set for each header of a record.
func (w Wire) Write(record broker.Record, set func(name, value string)) {
	for name, value := range record.Attributes {
		set(w.Attributes[0]+name, value)
	}
	for name, value := range record.Headers {
		if w.reserved(name) {
			name = HeaderPrefix + name
		}
		set(name, value)
	}
	if w.ContentType != "" && record.ContentType != "" {
		set(w.ContentType, record.ContentType)
	}
	if !w.Keyed && record.Key != record.Attributes["partitionkey"] {
		set(KeyHeader, record.Key)
	}
	if !w.Keyed && record.Body == nil {
		set(TombstoneHeader, "true")
	}
}

// Read adds to a record what headers say. Of headers with the same name the last counts.
func (w Wire) Read(r *broker.Record, headers iter.Seq2[string, string]) {
	var key *string
	for name, value := range headers {
		attribute, isAttribute := w.attribute(name)
		switch {
		case isAttribute:
			Put(&r.Attributes, attribute, value)
		case name == w.ContentType && name != "":
			r.ContentType = value
		case name == IDHeader:
			r.ID = value
		case name == KeyHeader && !w.Keyed:
			key = &value
		case name == TombstoneHeader && !w.Keyed:
			r.Body = nil
		case strings.HasPrefix(name, HeaderPrefix):
			Put(&r.Headers, name[len(HeaderPrefix):], value)
		case !w.reserved(name):
			Put(&r.Headers, name, value)
		}
	}
	if !w.Keyed {
		r.Key = KeyOf(*r, key)
	}
}

// KeyOf returns the key of a received record: the value of the key header, or the partition key.
func KeyOf(r broker.Record, said *string) string {
	if said != nil {
		return *said
	}
	return r.Attributes["partitionkey"]
}

func (w Wire) attribute(name string) (attribute string, is bool) {
	for _, prefix := range w.Attributes {
		if attribute, is = strings.CutPrefix(name, prefix); is {
			return attribute, true
		}
	}
	return "", false
}

// reserved reports whether a header's name means something to the broker, to CloudEvents or to us.
func (w Wire) reserved(name string) bool {
	_, isAttribute := w.attribute(name)
	return isAttribute || strings.HasPrefix(name, OwnPrefix) || name == w.ContentType && name != "" || w.Reserved != nil && w.Reserved(name)
}

// Put puts a value into a map, which it makes if there is none.
func Put(m *map[string]string, name, value string) {
	if *m == nil {
		*m = make(map[string]string)
	}
	(*m)[name] = value
}
