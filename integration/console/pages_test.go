package console_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/ops"
)

// ofEachKind is one page of each kind that a crawl has found.
func ofEachKind(pages map[string]*document) []string {
	first := make(map[string]string)
	for _, path := range slices.Sorted(maps.Keys(pages)) {
		if _, known := first[kindOf(path)]; !known {
			first[kindOf(path)] = path
		}
	}
	return slices.Sorted(maps.Values(first))
}

// how a page is looked at.
type sight struct {
	width int64
	theme string
}

// sights are all four, or the one of two that has its turn: each theme and width comes once to a page that two worlds have.
func sights(turn int) []sight {
	few := []sight{{1280, "light"}, {360, "dark"}}
	if *all {
		return append(few, sight{1280, "dark"}, sight{360, "light"})
	}
	return few[turn%2:][:1]
}

// TestPages: no page of whatever data complains in a browser, or is hard to read for anybody.
func TestPages(t *testing.T) {
	t.Parallel()
	worlds := worlds()
	if !*all {
		worlds = slices.DeleteFunc(worlds, func(w world) bool { return w.name != "normal" && w.name != "hostile" })
	}
	for turn, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, inWorld(t, w.name), ops.Administrator)
			paths := ofEachKind(crawl(s, 6))
			address := s.serve()
			b := newTab(t)
			for _, path := range paths {
				for i, look := range sights(turn + len(kindOf(path))) {
					b.look(look.width, look.theme)
					if i == 0 {
						b.mustVisit(address + path)
					}
					b.accessible(fmt.Sprintf("%q in %s, %d wide", path, look.theme, look.width))
				}
				if eval[bool](b, "window.pwned !== undefined") {
					t.Errorf("%s: a script of somebody's text has run", path)
				}
			}
		})
	}
}
