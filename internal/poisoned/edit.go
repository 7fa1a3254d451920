package poisoned

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/dberr"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// Edit lists the fields in which an edited payload differs, deliberately or by mistake. A field is
// named by its path: "lines[].sku" covers every element of a list. If a field is listed, the fields
// inside it are not.
type Edit struct {
	// Unknown fields are missing from the consumer's type, which ignores them.
	Unknown []string `json:"unknown,omitempty"`
	// Missing fields are in the stored payload but not in the edited one.
	Missing []string `json:"missing,omitempty"`
	// More is true if either list has more than 100 fields. Only the first 100 are listed.
	More bool `json:"more,omitempty"`
}

const (
	mostFields = 100    // listed fields
	mostPaths  = 10_000 // examined paths
	mostDepth  = 32     // nesting depth
)

// CheckEdit looks for misspelt field names in a payload before [Store.EditAndRequeueText] stores
// it. It changes nothing. It needs the codec bus.JSON and a consumer with a type, else the error is
// an errors.ErrUnsupported. A payload that does not decode is poison.ErrPayload. Other errors are those
// of EditAndRequeueText. Map keys, and fields handled by an UnmarshalJSON method, count as known.
// It examines 32 levels and 10,000 fields.
func (s *Store) CheckEdit(ctx context.Context, db bun.IDB, id int64, text []byte) (Edit, error) {
	m, err := s.Get(ctx, db, id)
	if err != nil {
		return Edit{}, err
	}
	edit, err := s.checkEdit(m, text)
	return edit, dberr.Wrap(err, "poison: check edit of %d", id)
}

func (s *Store) checkEdit(m poison.Message, text []byte) (Edit, error) {
	c, ok := s.registry.Consumer(m.Consumer)
	if !ok {
		return Edit{}, fmt.Errorf("consumer %q: %w", m.Consumer, bus.ErrNoConsumer)
	}
	if _, isJSON := s.registry.Codec().(bus.JSON); !isJSON || access.Raw(c) {
		return Edit{}, fmt.Errorf(
			"consumer %q with codec %T: %w: a consumer with a type, and codec bus.JSON, are allowed", c.Name(), s.registry.Codec(),
			errors.ErrUnsupported,
		)
	}
	schema := store.TakeSchema(maps.Clone(m.Headers))
	if err := access.CheckStored(c, s.registry.Codec(), &bus.Message{Payload: text, Schema: schema}); err != nil {
		return Edit{}, fmt.Errorf("%w: %w", poison.ErrPayload, err)
	}
	edited, stored := fieldsOf(text), fieldsOf(m.Payload)
	var e Edit
	if schema == access.Schema(s.registry, &bus.Message{PayloadType: c.PayloadType()}) { // the type has no fields of older schemas
		e.Unknown = topmost(edited, func(path string) bool { return unknown(c, path) })
	}
	e.Missing = topmost(stored, func(path string) bool { return !edited[path] })
	e.More = len(e.Unknown) > mostFields || len(e.Missing) > mostFields
	e.Unknown, e.Missing = e.Unknown[:min(len(e.Unknown), mostFields)], e.Missing[:min(len(e.Missing), mostFields)]
	return e, nil
}

const (
	separator = "\x00" // between the names of a path
	element   = "\x01" // all elements of a list
)

// fieldsOf returns the paths of all fields of a payload, and none if it is not JSON.
func fieldsOf(text []byte) map[string]bool {
	var value any
	paths := make(map[string]bool)
	if json.Unmarshal(text, &value) == nil {
		addFields(paths, "", value, 0)
	}
	return paths
}

func addFields(paths map[string]bool, at string, value any, depth int) {
	if depth++; depth > mostDepth {
		return
	}
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			path := at + separator + name
			if strings.ContainsAny(name, separator+element) || !paths[path] && len(paths) >= mostPaths {
				continue
			}
			paths[path] = true
			addFields(paths, path, inner, depth)
		}
	case []any:
		for _, inner := range v {
			addFields(paths, at+separator+element, inner, depth)
		}
	}
}

// topmost returns the matching paths in readable form, without those inside another match.
func topmost(paths map[string]bool, is func(path string) bool) (found []string) {
	var last string
	var sorted []string
	for path := range paths {
		sorted = append(sorted, path)
	}
	slices.Sort(sorted) // nested paths follow their parent, since the separator sorts first
	for _, path := range sorted {
		if last != "" && strings.HasPrefix(path, last+separator) || len(found) > mostFields || !is(path) {
			continue
		}
		last = path
		readable := strings.ReplaceAll(path[len(separator):], separator+element, "[]")
		found = append(found, strings.ReplaceAll(readable, separator, "."))
	}
	return found
}

// unknown reports whether the consumer's type lacks a field. If so, a payload of that field alone
// decodes only if unknown fields are allowed.
func unknown(c bus.Consumer, path string) bool {
	names := strings.Split(path[len(separator):], separator)
	text := []byte("null")
	for _, name := range slices.Backward(names) {
		if name == element {
			text = slices.Concat([]byte("["), text, []byte("]"))
			continue
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return false // impossible: a text
		}
		text = slices.Concat([]byte("{"), quoted, []byte(":"), text, []byte("}"))
	}
	return access.CheckPayload(c, bus.JSON{}, text) == nil && access.CheckPayload(c, strict{}, text) != nil
}

// strict is JSON in which unknown fields are errors.
type strict struct{ bus.JSON }

// Decode implements bus.Codec.
func (strict) Decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// EditAndRequeueText is poison.Store.EditAndRequeue for an encoded payload, such as one typed by an
// operator. It is in the schema of the stored payload: see bus.Upcaster. It must decode into the
// consumer's type with the registry's codec, else the error is poison.ErrPayload. bus.JSON is as
// lenient as encoding/json: unknown fields are stored and ignored by the consumer, and missing fields
// are zero. A misspelt name is therefore not detected: see [Store.CheckEdit].
func (s *Store) EditAndRequeueText(ctx context.Context, db bun.IDB, id int64, text []byte) error {
	return edit(ctx, s.Store, db, id, text)
}
