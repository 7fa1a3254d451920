package nats

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/asyncmonolith/asyncmonolith-go/broker"
	"github.com/asyncmonolith/asyncmonolith-go/broker/internal/adapter"
)

// Names of headers. The rules are those of adapter.Wire, but for the encoding: NATS carries few names and
// values as they are.
const (
	attributePrefix   = "ce-"
	idHeader          = nats.MsgIdHdr
	contentTypeHeader = "Content-Type"

	// What follows is percent-encoded: text that could not travel as it is.
	encodedIDHeader          = adapter.IDHeader
	encodedContentTypeHeader = adapter.OwnPrefix + "content-type"
	encodedHeaderPrefix      = adapter.HeaderPrefix // before the name, which is encoded, too
)

// message is what a record is to NATS.
func message(record broker.Record, reply string) *nats.Msg {
	most := len(record.Attributes) + len(record.Headers) + 6
	header, values := make(nats.Header, most), make([]string, 0, most)
	set := func(name, value string) {
		values = append(values, value) // one allocation for all
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	for name, value := range record.Attributes {
		set(attributePrefix+encodeName(name), encode(value))
	}
	for name, value := range record.Headers {
		if name != "" && encodeName(name) == name && isPlain(value) && !isReserved(name) {
			set(name, value)
		} else {
			set(encodedHeaderPrefix+encodeName(name), encode(value))
		}
	}
	if isPlain(record.ID) {
		set(idHeader, record.ID)
	} else if record.ID != "" {
		set(idHeader, encode(record.ID))
		set(encodedIDHeader, encode(record.ID))
	}
	if isPlain(record.ContentType) {
		set(contentTypeHeader, record.ContentType)
	} else if record.ContentType != "" {
		set(encodedContentTypeHeader, encode(record.ContentType))
	}
	if record.Key != record.Attributes["partitionkey"] {
		set(adapter.KeyHeader, encode(record.Key))
	}
	if record.Body == nil {
		set(adapter.TombstoneHeader, "true")
	}
	return &nats.Msg{Subject: record.Destination, Reply: reply, Header: header, Data: record.Body}
}

// maxControlLine is what a server takes as a line, unless it is told otherwise: a longer one has it end
// the connection, and the client gives that up for good. Of it lineRest is for the reply subject of a
// request, and for the rest.
const (
	maxControlLine = 4096
	lineRest       = 128
)

// checkSubject refuses a subject that no stream can have. The server would not say so: there is no
// answer, as if the stream were away, or a stream keeps what no consumer asks for.
func checkSubject(subject, reply string) error {
	if len(subject)+len(reply) > maxControlLine-lineRest {
		return fmt.Errorf(
			"the subject has %d bytes, at most %d are allowed: %w", len(subject), maxControlLine-lineRest-len(reply), broker.ErrRejected,
		)
	}
	if strings.HasPrefix(subject, "$JS.") || strings.HasPrefix(subject, "$SYS.") {
		return fmt.Errorf("the subject is reserved for the server: %w", broker.ErrRejected)
	}
	for part := range strings.SplitSeq(subject, ".") {
		if part == "" || part == "*" || part == ">" || strings.ContainsAny(part, " \t\r\n") {
			return fmt.Errorf("part %.40q of the subject: it must not be empty, a wildcard, or have spaces: %w", part, broker.ErrRejected)
		}
	}
	return nil
}

// record is what a message is to a relay.
func record(msg *nats.Msg) broker.Record {
	r := broker.Record{Destination: msg.Subject, Body: msg.Data}
	if r.Body == nil {
		r.Body = []byte{}
	}
	var key *string
	for name, values := range msg.Header {
		value := strings.Join(values, ", ")
		switch attribute, isAttribute := cutPrefixFold(name, attributePrefix); {
		case isAttribute:
			// A header "Ce-Type", as HTTP has it, means the attribute type, unless there is
			// "ce-type", too.
			lower := strings.ToLower(name)
			if _, both := msg.Header[lower]; !both || lower == name {
				adapter.Put(&r.Attributes, strings.ToLower(decode(attribute)), decode(value))
			}
		case name == adapter.TombstoneHeader:
			r.Body = nil
		case name == adapter.KeyHeader:
			decoded := decode(value)
			key = &decoded
		case strings.EqualFold(name, contentTypeHeader):
			r.ContentType = value
		case strings.HasPrefix(name, encodedHeaderPrefix):
			adapter.Put(&r.Headers, decode(name[len(encodedHeaderPrefix):]), decode(value))
		case !isReserved(name):
			adapter.Put(&r.Headers, name, value)
		}
	}
	if encoded := msg.Header[encodedContentTypeHeader]; len(encoded) > 0 {
		r.ContentType = decode(encoded[0])
	}
	r.ID = msg.Header.Get(idHeader)
	if encoded := msg.Header[encodedIDHeader]; len(encoded) > 0 {
		r.ID = decode(encoded[0])
	}
	r.Key = adapter.KeyOf(r, key)
	return r
}

// isReserved reports whether a header's name means something to NATS, to CloudEvents or to us.
func isReserved(name string) bool {
	for _, prefix := range []string{"Nats-", attributePrefix, adapter.OwnPrefix} {
		if _, ok := cutPrefixFold(name, prefix); ok {
			return true
		}
	}
	for _, one := range []string{contentTypeHeader, "Status", "Description"} {
		if strings.EqualFold(name, one) {
			return true
		}
	}
	return false
}

func cutPrefixFold(s, prefix string) (string, bool) {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return s, false
	}
	return s[len(prefix):], true
}

// isPlain reports whether text travels as it is, as the value of a header: visible ASCII, and
// spaces inside.
func isPlain(text string) bool {
	for i := range len(text) {
		switch c := text[i]; {
		case c == ' ' && i > 0 && i < len(text)-1:
		case c <= ' ' || c >= 0x7f:
			return false
		}
	}
	return text != ""
}

// encode percent-encodes what CloudEvents wants encoded in HTTP: everything but visible ASCII, and
// of that the space, the quote and the percent sign.
func encode(text string) string {
	return escape(text, func(c byte) bool { return c > ' ' && c < 0x7f && c != '"' && c != '%' })
}

// encodeName percent-encodes all but letters, digits and "-_.": the client takes few names.
func encodeName(name string) string {
	return escape(name, func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
	})
}

const hexDigits = "0123456789ABCDEF"

// escape returns text itself where all of it is plain, as most is.
func escape(text string, plain func(c byte) bool) string {
	first := 0
	for first < len(text) && plain(text[first]) {
		first++
	}
	if first == len(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 2)
	b.WriteString(text[:first])
	for i := first; i < len(text); i++ {
		if c := text[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// decode undoes encode and encodeName. What is not encoded rightly stays as it is.
func decode(text string) string {
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}
