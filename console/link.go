package console

import (
	"fmt"
	"iter"
	"maps"
	"net/url"
	"reflect"
	"slices"
)

// link is a path of the console with its query. It is relative, so that it holds behind a proxy that
// moves the console elsewhere. Names are in queries and not in paths: a consumer may be called "..".
type link struct {
	path  string
	query url.Values
}

// linkTo makes a link. Zero values are left out: a text "0" is none, and may be all that narrows a filter.
func linkTo(path string, pairs ...any) link {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := reflect.ValueOf(pairs[i+1]); value.IsValid() && !value.IsZero() {
			query.Add(fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1]))
		}
	}
	return link{path, query}
}

// String is the link as an attribute or a header has it.
func (l link) String() string {
	path := l.path
	if path == "" {
		path = "./"
	}
	if len(l.query) == 0 {
		return path
	}
	return path + "?" + l.query.Encode()
}

// ordered are the values of a query by name, those that have one.
func ordered(query url.Values) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, name := range slices.Sorted(maps.Keys(query)) {
			if !yield(name, query.Get(name)) {
				return
			}
		}
	}
}
