package console

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"reflect"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

// link is a path of the console with its query. It is relative, so that it works behind a proxy that
// moves paths. Names are in queries and not in paths: a consumer may be called "..".
type link struct {
	path  string
	query url.Values
}

// linkTo makes a link. It leaves out zero values, but not the text "0", which may be all that narrows a filter.
func linkTo(path string, pairs ...any) link {
	query := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if value := reflect.ValueOf(pairs[i+1]); value.IsValid() && !value.IsZero() {
			query.Add(fmt.Sprint(pairs[i]), fmt.Sprint(pairs[i+1]))
		}
	}
	return link{path, query}
}

// String is the link as an address.
func (l link) String() string {
	path := cmp.Or(l.path, "./")
	if len(l.query) == 0 {
		return path
	}
	return path + "?" + l.query.Encode()
}

// paging are the links below a list. They are empty where there is no such page.
type paging struct{ First, Next string }

// paging returns the links from one page of a list to the others.
func (l link) paging(next *admin.Page) (p paging) {
	if l.query.Has("after") {
		p.First = l.after("").String()
	}
	if next != nil {
		p.Next = l.after(next.After).String()
	}
	return p
}

// after is the page of the list that begins after that place, or the first one.
func (l link) after(place string) link {
	query := maps.Clone(l.query)
	query.Del("after")
	if place != "" {
		query.Set("after", place)
	}
	return link{l.path, query}
}
