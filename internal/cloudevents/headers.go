package cloudevents

import (
	"fmt"
	"net/url"
	"strings"
)

const (
	// runPrefix begins headers that hold the trace context of the publishing span. They replace
	// those of the span that created the message.
	runPrefix = "asyncmonolith-run-"
	// escapedHeader means that all header names and values are percent-encoded, because one of
	// them contained characters that are not allowed.
	escapedHeader = "asyncmonolith-escaped"
)

// stays reports whether a header belongs to the library or a broker and is not forwarded.
func stays(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "asyncmonolith-") || strings.HasPrefix(name, "nats-") || strings.HasPrefix(name, "x-")
}

// Outgoing converts a message's headers to those of its record.
func Outgoing(headers map[string]string) map[string]string {
	out := make(map[string]string, len(headers))
	hostile := false
	for name, value := range headers {
		run, isRun := strings.CutPrefix(name, runPrefix)
		switch {
		case isRun && run != "":
			name = run
		case stays(name):
			continue
		default:
			if _, replaced := headers[runPrefix+name]; replaced {
				continue
			}
		}
		out[name] = value
		hostile = hostile || !isToken(name) || Printable(value) != value || strings.TrimSpace(value) != value
	}
	if len(out) == 0 {
		return nil
	}
	if !hostile {
		return out
	}
	escaped := make(map[string]string, len(out)+1)
	for name, value := range out {
		escaped[escapeName(name)] = url.PathEscape(value)
	}
	escaped[escapedHeader] = "1"
	return escaped
}

// Incoming converts a record's headers to those of its message.
func Incoming(headers map[string]string) (map[string]string, error) {
	_, escaped := headers[escapedHeader]
	var in map[string]string
	for name, value := range headers {
		if stays(name) {
			continue
		}
		if escaped {
			var err error
			if name, err = url.PathUnescape(name); err != nil {
				return nil, fmt.Errorf("the name of a header is not percent-encoded, as %s says", escapedHeader)
			}
			if value, err = url.PathUnescape(value); err != nil {
				return nil, fmt.Errorf("header %q is not percent-encoded, as %s says", name, escapedHeader)
			}
			if stays(name) {
				continue
			}
		}
		if in == nil {
			in = make(map[string]string, len(headers))
		}
		in[name] = value
	}
	return in, nil
}

// isToken reports whether every protocol accepts a header name.
func isToken(name string) bool {
	return name != "" && escapeName(name) == name
}

// escapeName percent-encodes all but letters, digits, and "-", "_" and ".".
func escapeName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Printable percent-encodes invalid UTF-8 and control characters, which attributes may not
// contain.
func Printable(text string) string {
	if strings.IndexFunc(text, isHostile) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		if !isHostile(r) {
			b.WriteRune(r)
			continue
		}
		n := len(string(r))
		if r == '\uFFFD' { // an invalid byte, or U+FFFD itself
			n = 1
			if strings.HasPrefix(text[i:], "\uFFFD") {
				n = 3
			}
		}
		for j := range n {
			fmt.Fprintf(&b, "%%%02X", text[i+j])
		}
	}
	return b.String()
}

// isHostile reports whether CloudEvents forbids a character in an attribute.
func isHostile(r rune) bool {
	return r < 0x20 || r >= 0x7f && r <= 0x9f || r == '\uFFFD' || r >= 0xfdd0 && r <= 0xfdef || r&0xfffe == 0xfffe
}
