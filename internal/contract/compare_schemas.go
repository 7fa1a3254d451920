package contract

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// schemas compares two schemas of one payload.
type schemas struct {
	*comparison
	payload     string
	before, now *Schema            // whole, for references
	seen        map[[2]string]bool // references that are being compared
}

const schemaAdvice = "keep the field and its json tag, or give the payload an upcaster (see bus.Upcaster), or make a new payload type"

// compare compares the schemas of a field, named by its path.
func (s *schemas) compare(path string, before, now *Schema) {
	refs := [2]string{refOf(before), refOf(now)}
	if refs[0] != "" && refs[1] != "" {
		if s.seen[refs] {
			return
		}
		s.seen[refs] = true
	}
	before, nullBefore := resolve(before, s.before)
	now, nullNow := resolve(now, s.now)
	if was, is := before.kind(), now.kind(); was != is {
		s.breaks(schemaAdvice, "payload %q: %s is %s, and was %s: what is stored does not fit", s.payload, at(path), is, was)
		return
	}
	if nullBefore != nullNow {
		s.adds("payload %q: %s %s", s.payload, at(path), map[bool]string{true: "may be null", false: "is never null"}[nullNow])
	}
	s.properties(path, before, now)
	for _, inner := range []struct {
		path        string
		before, now *Schema
	}{{path + "[]", before.Items, now.Items}, {path + ".*", before.Values, now.Values}} {
		if inner.before != nil && inner.now != nil {
			s.compare(inner.path, inner.before, inner.now)
		}
	}
}

func (s *schemas) properties(path string, before, now *Schema) {
	for _, name := range slices.Sorted(maps.Keys(before.Properties)) {
		inner := path + "." + name
		if now.Properties[name] == nil {
			s.breaks(schemaAdvice, "payload %q: %s is gone: what is stored has it, and processes of the release before read it",
				s.payload, at(inner))
			continue
		}
		s.compare(inner, before.Properties[name], now.Properties[name])
		was, is := slices.Contains(before.Required, name), slices.Contains(now.Required, name)
		if was != is {
			s.adds("payload %q: %s %s", s.payload, at(inner), map[bool]string{true: "is always written", false: "may be left out"}[is])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now.Properties)) {
		if before.Properties[name] == nil {
			s.adds("payload %q: %s is new", s.payload, at(path+"."+name))
		}
	}
}

// at names a field by its path.
func at(path string) string {
	if path == "" {
		return "the payload"
	}
	return fmt.Sprintf("field %q", strings.TrimPrefix(path, "."))
}

// refOf returns the reference of a schema, or "".
func refOf(s *Schema) string {
	if len(s.AnyOf) > 0 {
		return s.AnyOf[0].Ref
	}
	return s.Ref
}

// resolve returns what a schema refers to, and whether it allows null.
func resolve(s, whole *Schema) (resolved *Schema, isNullable bool) {
	isNullable = len(s.AnyOf) > 0 || slices.Contains(s.Type, null)
	if ref := refOf(s); ref != "" {
		if target := whole.Defs[strings.TrimPrefix(ref, refTo(""))]; target != nil {
			return target, isNullable || slices.Contains(target.Type, null)
		}
	}
	return s, isNullable
}

// kind describes the type of a schema's values.
func (s *Schema) kind() string {
	if len(s.Type) == 0 {
		return "of any type"
	}
	kind := s.Type[0]
	if s.Values != nil {
		kind = "map"
		if s.Names != nil {
			kind = "map by " + s.Names.Format
		}
	}
	if detail := cmp.Or(s.Format, s.Encoding); detail != "" {
		kind += " (" + detail + ")"
	}
	if s.MaxItems != nil {
		kind += fmt.Sprintf(" of %d", *s.MaxItems)
	}
	return kind
}
