package cloudevents

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
)

// ConsumersAttribute is the extension attribute that names the consumers of an event.
const ConsumersAttribute = "consumers"

// SchemaAttribute is the extension attribute with the version of the data's schema, unless that is
// 1: see bus.Upcaster.
const SchemaAttribute = "schemaversion"

// JoinNames encodes consumer names as one attribute. [SplitNames] decodes them.
func JoinNames(names []string) string {
	escaped := make([]string, len(names))
	for i, name := range names {
		escaped[i] = url.QueryEscape(name)
	}
	return strings.Join(escaped, ",")
}

// SplitNames decodes what [JoinNames] encoded.
func SplitNames(text string) (names []string, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, err := url.QueryUnescape(part)
		if err != nil || name == "" {
			return nil, fmt.Errorf("attribute %s %q: names separated by commas are allowed", ConsumersAttribute, Short(text))
		}
		names = append(names, name)
	}
	return names, nil
}

// Hash returns 16 bytes of a hash of the parts, in hex.
func Hash(parts ...string) string {
	h := sha256.New()
	var size [8]byte
	for _, part := range parts {
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
