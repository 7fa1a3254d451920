package contract

import (
	"reflect"
	"strings"
	"unicode"
)

// field is a field of a struct as a codec writes it.
type field struct {
	name     string
	goType   reflect.Type
	depth    int
	tagged   bool
	optional bool // it may be left out
	quoted   bool // it is written as a string
}

// embedded is a struct whose fields are promoted.
type embedded struct {
	goType   reflect.Type
	optional bool // it is behind a pointer
}

// fields returns the fields that encoding/json writes: those of embedded structs are promoted, and of
// several with one name the least deep one is written, or the only tagged one.
func (d *deriver) fields(t reflect.Type) []field {
	var all []field
	visited := make(map[reflect.Type]bool)
	for level, depth := []embedded{{goType: t}}, 0; len(level) > 0; depth++ {
		var next []embedded
		count := make(map[reflect.Type]int)
		for _, e := range level {
			count[e.goType]++
		}
		for _, e := range level {
			if visited[e.goType] {
				continue
			}
			visited[e.goType] = true
			found, deeper := d.own(e, depth)
			if all = append(all, found...); count[e.goType] > 1 {
				all = append(all, found...) // they conflict with themselves
			}
			next = append(next, deeper...)
		}
		level = next
	}
	return dominant(all)
}

// own returns the fields of one struct, and the embedded structs whose fields are promoted.
func (d *deriver) own(e embedded, depth int) (found []field, deeper []embedded) {
	for f := range e.goType.Fields() {
		inner := f.Type
		if inner.Name() == "" && inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if !f.IsExported() && !(f.Anonymous && inner.Kind() == reflect.Struct) {
			continue
		}
		name, options, skipped := d.tag(f)
		if skipped {
			continue
		}
		if name == "" && f.Anonymous && inner.Kind() == reflect.Struct {
			deeper = append(deeper, embedded{inner, e.optional || f.Type.Kind() == reflect.Pointer})
			continue
		}
		one := field{name: name, goType: f.Type, depth: depth, tagged: name != "", optional: e.optional}
		if name == "" {
			one.name = f.Name
		}
		for option := range strings.SplitSeq(options, ",") {
			one.optional = one.optional || option == "omitempty" || option == "omitzero"
			one.quoted = one.quoted || option == "string" && quotable(inner)
		}
		found = append(found, one)
	}
	return found, deeper
}

// tag returns the name and the options of a field's tag.
func (d *deriver) tag(f reflect.StructField) (name, options string, skipped bool) {
	tag := f.Tag.Get("json")
	if d.goNames {
		return "", "", false
	}
	if tag == "-" {
		return "", "", true
	}
	name, options, _ = strings.Cut(tag, ",")
	if strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		name = "" // as encoding/json does
	}
	return name, options, false
}

func quotable(t reflect.Type) bool {
	k := t.Kind()
	return k == reflect.String || k >= reflect.Bool && k <= reflect.Float64
}

// dominant returns the fields that are written, of those with one name.
func dominant(all []field) (written []field) {
	byName := make(map[string][]field)
	var names []string
	for _, f := range all {
		if byName[f.name] == nil {
			names = append(names, f.name)
		}
		byName[f.name] = append(byName[f.name], f)
	}
	for _, name := range names {
		best, tied := byName[name][0], false
		for _, f := range byName[name][1:] {
			switch {
			case f.depth < best.depth || f.depth == best.depth && f.tagged && !best.tagged:
				best, tied = f, false
			case f.depth == best.depth && f.tagged == best.tagged:
				tied = true
			}
		}
		if !tied {
			written = append(written, best)
		}
	}
	return written
}
