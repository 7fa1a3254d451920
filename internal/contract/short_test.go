package contract_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
)

// short is a schema in one line, with its definitions behind it.
func short(s *contract.Schema) string {
	text := brief(s)
	for _, name := range slices.Sorted(maps.Keys(s.Defs)) {
		text += " " + name + "=" + brief(s.Defs[name])
	}
	return text
}

func brief(s *contract.Schema) string {
	switch {
	case len(s.AnyOf) > 0:
		return brief(s.AnyOf[0]) + "?"
	case s.Ref != "":
		return strings.Replace(s.Ref, "#/$defs/", "#", 1)
	case len(s.Type) == 0:
		return "any"
	}
	text := s.Type[0]
	if len(s.Type) > 1 {
		text += "?"
	}
	if s.Format+s.Encoding != "" {
		text += "/" + s.Format + s.Encoding
	}
	if s.MaxItems != nil {
		text += fmt.Sprintf("/%d", *s.MaxItems)
	}
	if s.Items != nil {
		text += "[" + brief(s.Items) + "]"
	}
	if s.Values != nil {
		text += "<" + brief(s.Values) + ">"
	}
	if s.Properties == nil {
		return text
	}
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := name + ":" + brief(s.Properties[name])
		if slices.Contains(s.Required, name) {
			field += "!"
		}
		fields = append(fields, field)
	}
	return "{" + strings.Join(fields, " ") + "}"
}
