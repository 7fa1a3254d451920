package contract_test

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
)

var update = flag.Bool("update", false, "write testdata anew")

// TestAsyncAPI compares a document of two programs with testdata/asyncapi.json. AsyncAPI's own schema accepts that.
func TestAsyncAPI(t *testing.T) {
	t.Parallel()
	shop := contract.Document{
		Consumers: map[string]contract.Consumer{"charge/card": {Payloads: []string{"order.placed", "order.sent"}}, "charge card": {},
			"out": {Payloads: []string{"tree"}}},
		Payloads: map[string]contract.Payload{
			"order.placed": {Aliases: []string{"order.sent"}, Version: 2, Schema: contract.SchemaOf(reflect.TypeFor[inner](), false)},
			"tree":         {Version: 1, Schema: contract.SchemaOf(reflect.TypeFor[tree](), false)},
		},
		Relays: map[string]contract.Relay{"out": {Source: "/shop", Content: "application/json", Routes: []contract.Route{
			{Payload: "tree", Type: "tree", Destination: "trees/all"}, {Payload: "order.placed", Type: "order.placed"}}}},
	}
	mail := contract.Document{
		Consumers: map[string]contract.Consumer{"receive:from-shop": {}},
		Payloads:  map[string]contract.Payload{"order.placed": {Version: 1, Schema: &contract.Schema{}}},
		Relays: map[string]contract.Relay{"receive:from-shop": {Receives: true,
			Routes: []contract.Route{{Payload: "order.placed", Type: "shop.order"}}}},
	}
	got, err := contract.AsyncAPI("Shop", "1.0.0", shop, mail)
	if err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/asyncapi.json"
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("got\n%s\nwant %s", got, golden)
	}
	var doc any
	if err := json.Unmarshal(got, &doc); err != nil {
		t.Fatal(err)
	}
	var refs []string
	collect(doc, &refs)
	if len(refs) < 10 {
		t.Errorf("got %d references, want at least 10", len(refs))
	}
	for _, ref := range refs {
		if !leads(doc, ref) {
			t.Errorf("reference %s leads nowhere", ref)
		}
	}
}

// collect finds all references of a document.
func collect(value any, refs *[]string) {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if ref, ok := inner.(string); ok && name == "$ref" {
				*refs = append(*refs, ref)
			}
			collect(inner, refs)
		}
	case []any:
		for _, inner := range v {
			collect(inner, refs)
		}
	}
}

// leads reports whether there is what a reference names.
func leads(doc any, ref string) bool {
	for part := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		object, ok := doc.(map[string]any)
		if !ok {
			return false
		}
		if doc, ok = object[part]; !ok {
			return false
		}
	}
	return true
}

// TestTypesOfRecursiveSchemasMayBeRenamed: a definition's name does not count, and what is in it does.
func TestTypesOfRecursiveSchemasMayBeRenamed(t *testing.T) {
	t.Parallel()
	type list struct {
		Value int   `json:"value"`
		Next  *list `json:"next"`
	}
	type renamed struct {
		Value int      `json:"value"`
		Next  *renamed `json:"next"`
	}
	type changed struct {
		Value string   `json:"value"`
		Next  *changed `json:"next"`
	}
	document := func(t reflect.Type) contract.Document {
		return contract.Document{Payloads: map[string]contract.Payload{"p": {Version: 1, Schema: contract.SchemaOf(t, false)}}}
	}
	before := document(reflect.TypeFor[list]())
	if got := contract.Compare(before, document(reflect.TypeFor[renamed]())); len(got) != 0 {
		t.Errorf("renamed: got %v, want no difference", got)
	}
	got := contract.Compare(before, document(reflect.TypeFor[changed]()))
	if !slices.ContainsFunc(got, func(d contract.Difference) bool {
		return d.Breaks && strings.Contains(d.Text, `field "value" is string`)
	}) {
		t.Errorf("changed: got %v, want its field", got)
	}
}

// TestParseReadsWhatTextWrites.
func TestParseReadsWhatTextWrites(t *testing.T) {
	t.Parallel()
	before := contract.Document{Codec: "x.Codec", Consumers: map[string]contract.Consumer{"c": {Payloads: []string{"p"}, NeedsKey: true}},
		Payloads: map[string]contract.Payload{"p": {Event: true, Version: 3, Schema: contract.SchemaOf(reflect.TypeFor[everything](), false)}}}
	text, err := before.Text()
	if err != nil {
		t.Fatal(err)
	}
	now, err := contract.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if got := contract.Compare(before, now); len(got) != 0 || !reflect.DeepEqual(before, now) {
		t.Errorf("got %v, want no difference", got)
	}
}
