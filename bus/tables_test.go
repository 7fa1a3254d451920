package bus_test

import (
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

func TestTablesAcceptsIdentifiers(t *testing.T) {
	t.Parallel()
	for _, tables := range []bus.Tables{
		{},
		{Schema: "shop"},
		{Prefix: "am_"},
		{Schema: "_", Prefix: "_"},
		{Schema: "s2", Prefix: "a1_"},
		{Schema: "select", Prefix: "order"}, // names are always quoted
		{Schema: strings.Repeat("s", 63), Prefix: strings.Repeat("p", 24)},
	} {
		if err := access.CheckTables(tables); err != nil {
			t.Errorf("%+v: got %v, want no error", tables, err)
		}
	}
}

func TestTablesRefusesWhatIsNoIdentifier(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		text string
		want string
	}{
		{"upper case", "Shop", `"Shop"`},
		{"a leading digit", "1shop", `"1shop"`},
		{"a dash", "my-shop", `"my-shop"`},
		{"a dot", "public.shop", `"public.shop"`},
		{"a space", "my shop", `"my shop"`},
		{"only a space", " ", `" "`},
		{"a quote", `a"b`, `"a\"b"`},
		{"an injection", "a; DROP TABLE orders", "DROP TABLE"},
		{"a letter that is not ASCII", "café", `"café"`},
		{"a trailing line break", "shop\n", `"shop\n"`},
		{"a second line", "shop\nevil", `"shop\nevil"`},
		{"a NUL byte", "shop\x00", `"shop\x00"`},
		{"invalid UTF-8", "shop\xff", `"shop\xff"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for field, tables := range map[string]bus.Tables{"Tables.Schema": {Schema: test.text}, "Tables.Prefix": {Prefix: test.text}} {
				got := mistakes(access.CheckTables(tables))
				if want := []string{"bus: " + field, test.want, "^[a-z_][a-z0-9_]*$"}; len(got) != 1 || !mentions(got, want) {
					t.Errorf("got mistakes %q, want one with %q", got, want)
				}
			}
		})
	}
}

func TestTablesRefusesLongNames(t *testing.T) {
	t.Parallel()
	got := mistakes(access.CheckTables(bus.Tables{Schema: strings.Repeat("s", 64), Prefix: strings.Repeat("p", 25)}))
	for _, want := range [][]string{{"Tables.Schema", "64 bytes", "63"}, {"Tables.Prefix", "25 bytes", "24"}} {
		if !mentions(got, want) {
			t.Errorf("got mistakes %q, want one with %q", got, want)
		}
	}
}

func TestTablesReportsEveryMistake(t *testing.T) {
	t.Parallel()
	_, err := bus.RegistryConfig{Tables: bus.Tables{Schema: "A", Prefix: strings.Repeat("P", 25)}}.NewRegistry()
	if got := mistakes(err); len(got) != 3 {
		t.Errorf("got %d mistakes %q, want 3: the schema, the prefix, and its length", len(got), got)
	}
}
