package contract_test

import (
	"encoding/json"
	"math/big"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/asyncmonolith/asyncmonolith-go/internal/contract"
)

type inner struct {
	A int
	B string `json:"b"`
}

type Shared struct{ X, Y int }

type one struct {
	Shared
	Z int
}

type two struct{ Shared }

type tree struct {
	Name     string `json:"name"`
	Children []tree `json:"children"`
	Parent   *tree  `json:"parent,omitempty"`
	Any      any    `json:"any"`
	//lint:ignore U1000 it is not written
	forest  []tree
	Skipped chan int `json:"-"`
}

type forest []forest

type marshals struct {
	//lint:ignore U1000 it is not written
	hidden int
}

func (marshals) MarshalJSON() ([]byte, error) { return []byte("1"), nil }

// TestSchemaFollowsEncodingJSON derives the schemas of types, in short: {a:string!} is an object with a field that is always
// written.
func TestSchemaFollowsEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		value any
		want  string
	}{
		{struct{ A bool }{}, "{A:boolean!}"},
		{struct {
			A int   `json:"a"`
			B *int8 `json:"b,omitempty"`
			C uint  `json:",omitzero"`
		}{}, "{C:integer/uint64 a:integer/int64! b:integer?/int8}"},
		{struct {
			A float32
			B float64 `json:"A.b"`
			//lint:ignore SA5008 encoding/json takes it as a field named "-"
			C string `json:"-,"`
		}{}, "{-:string! A:number/float! A.b:number/double!}"},
		{struct{ A []byte }{}, "{A:string?/base64!}"},
		{struct{ A [3]byte }{}, "{A:array/3[integer/uint8]!}"},
		{struct{ A []string }{}, "{A:array?[string]!}"},
		{struct{ A map[string]inner }{}, "{A:object?<{A:integer/int64! b:string!}>!}"},
		{struct{ A map[int][]int }{}, "{A:object?<array?[integer/int64]>!}"},
		{struct {
			A time.Time
			B time.Duration
			C *time.Time
		}{}, "{A:string/date-time! B:integer/int64! C:string?/date-time!}"},
		{struct {
			A uuid.UUID
			B netip.Addr
			C *big.Int
			D json.RawMessage
			E json.Number
			F marshals
			G any
		}{}, "{A:string/uuid! B:string/text! C:any! D:any! E:number! F:any! G:any!}"},
		{struct {
			A int   `json:",string"`
			B *bool `json:",string"`
			//lint:ignore SA5008 encoding/json ignores the option
			C []int   `json:",string"`
			D float64 `json:"d,omitempty,string"`
		}{}, "{A:string/int64! B:string?/boolean! C:array?[integer/int64]! d:string/double}"},
		{struct {
			inner
			C int
		}{}, "{A:integer/int64! C:integer/int64! b:string!}"},
		{struct {
			*Shared
			Y string
		}{}, "{X:integer/int64 Y:string!}"},
		{struct {
			Shared `json:"s"`
		}{}, "{s:{X:integer/int64! Y:integer/int64!}!}"},
		{struct {
			one
			two
		}{}, "{Z:integer/int64!}"}, // X and Y are ambiguous
		{struct {
			A int    `json:"B"`
			B string // the tag wins
		}{}, "{B:integer/int64!}"},
		{struct{ A func() }{}, "{A:any!}"},
		{tree{}, "#tree tree={any:any! children:array?[#tree]! name:string! parent:#tree?}"},
		{struct{ F forest }{}, "{F:#forest!} forest=array?[#forest]"},
		{marshals{}, "any"},
	} {
		if got := short(contract.SchemaOf(reflect.TypeOf(test.value), false)); got != test.want {
			t.Errorf("%T:\ngot  %s\nwant %s", test.value, got, test.want)
		}
	}
}

// TestFieldsOfAnotherCodec are those of the Go type.
func TestFieldsOfAnotherCodec(t *testing.T) {
	t.Parallel()
	type payload struct {
		A int    `json:"a,omitempty"`
		B string `json:"-"`
		//lint:ignore U1000 it is not written
		c int
	}
	if got, want := short(contract.SchemaOf(reflect.TypeFor[payload](), true)), "{A:integer/int64! B:string!}"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// everything has values of most kinds.
type everything struct {
	inner
	T  tree              `json:"t"`
	At time.Time         `json:"at"`
	B  []byte            `json:"b2"`
	M  map[string]*inner `json:"m"`
	N  *uint16           `json:"n,omitempty"`
	Q  int               `json:",string"`
	L  [2]bool
	F  float64
	I  any
}

// TestTextsFitTheirSchema validates what encoding/json writes.
func TestTextsFitTheirSchema(t *testing.T) {
	t.Parallel()
	n := uint16(3)
	for _, value := range []everything{
		{},
		{T: tree{Name: "a", Children: []tree{{Name: "b", Parent: &tree{}}}}, B: []byte{0, 1}, M: map[string]*inner{"k": {A: 1}, "n": nil},
			N: &n, I: map[string]any{"x": 1}},
	} {
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var decoded any
		if err := json.Unmarshal(text, &decoded); err != nil {
			t.Fatal(err)
		}
		s := contract.SchemaOf(reflect.TypeOf(value), false)
		if why := invalid(s, s, decoded, ""); why != "" {
			t.Errorf("%s does not fit: %s", text, why)
		}
	}
}

// invalid says why a value does not fit a schema, or nothing.
func invalid(whole, s *contract.Schema, value any, path string) string {
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		return invalid(whole, whole.Defs[name], value, path)
	}
	if len(s.AnyOf) > 0 {
		if value == nil {
			return ""
		}
		return invalid(whole, s.AnyOf[0], value, path)
	}
	kind := map[bool]string{true: "null"}[value == nil]
	switch v := value.(type) {
	case bool:
		kind = "boolean"
	case string:
		kind = "string"
	case float64:
		kind = "number"
		if v == float64(int64(v)) && len(s.Type) > 0 && s.Type[0] == "integer" {
			kind = "integer"
		}
	case []any:
		kind = "array"
		for _, inner := range v {
			if s.Items != nil {
				if why := invalid(whole, s.Items, inner, path+"[]"); why != "" {
					return why
				}
			}
		}
		if s.MaxItems != nil && len(v) != *s.MaxItems {
			return path + ": length"
		}
	case map[string]any:
		kind = "object"
		for _, name := range s.Required {
			if _, ok := v[name]; !ok {
				return path + "." + name + " is missing"
			}
		}
		for name, inner := range v {
			of := s.Properties[name]
			if of == nil {
				of = s.Values
			}
			if of == nil && len(s.Type) > 0 {
				return path + "." + name + " is unknown"
			}
			if of != nil {
				if why := invalid(whole, of, inner, path+"."+name); why != "" {
					return why
				}
			}
		}
	}
	if len(s.Type) == 0 {
		return ""
	}
	for _, allowed := range s.Type {
		if allowed == kind {
			return ""
		}
	}
	return path + " is " + kind + ", want " + strings.Join(s.Type, " or ")
}
