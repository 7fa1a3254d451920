package store_test

import (
	"strings"
	"testing"

	"github.com/uptrace/bun/dialect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

func TestChannelsOfDifferentTablesDiffer(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("s", 62)
	seen := map[string]bus.Tables{}
	for _, tables := range []bus.Tables{
		{}, {Schema: "a"}, {Prefix: "a"}, {Schema: "a", Prefix: "a"}, {Schema: "a_a"}, {Prefix: "a_a"}, {Schema: "a", Prefix: "_a"},
		{Schema: long + "x"}, {Schema: long + "y"}, {Schema: long, Prefix: "x"}, {Schema: long + "x", Prefix: strings.Repeat("p", 24)},
	} {
		s, err := store.For(dialect.PG, tables)
		if err != nil {
			t.Fatal(err)
		}
		name, ok := s.Channel()
		if !ok || len(name) > 63 {
			t.Errorf("%+v: got channel %q of %d bytes and %t, want 63 at most and true", tables, name, len(name), ok)
		}
		if other, taken := seen[name]; taken {
			t.Errorf("%+v and %+v: got the same channel %q, want different ones", tables, other, name)
		}
		seen[name] = tables
	}
}
