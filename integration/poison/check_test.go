package poison_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testapp"
	"github.com/asyncmonolith/asyncmonolith-go/integration/testdb"
	"github.com/asyncmonolith/asyncmonolith-go/internal/poisoned"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// parcel is a payload with every kind of field.
type parcel struct {
	base
	ID    string `json:"id"`
	Lines []struct {
		SKU string `json:"sku"`
	} `json:"lines"`
	To     *address       `json:"to"`
	Labels map[string]any `json:"labels"`
	Own    own            `json:"own"`
	Hidden string         `json:"-"`
}

type base struct {
	Weight int `json:"weight"`
}

type address struct {
	City string `json:"city"`
}

type own struct{ text string }

func (o *own) UnmarshalJSON(text []byte) error { o.text = string(text); return nil }

func (parcel) PayloadType() string { return "parcel" }

func TestCheckEdit(t *testing.T) {
	t.Parallel()
	testdb.Each(t, func(t *testing.T, db *bun.DB) {
		var n atomic.Int64
		a, s := testapp.NewPoisoned(t, db, 3, testapp.Counting("c", &n), bus.Consume("p", func(context.Context, parcel) error { return nil }),
			bus.ConsumeRaw("raw", func(context.Context, []*bus.Message) error { return nil }, []string{"r"}))
		ctx := t.Context()
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'p', payload = ? WHERE id = 1",
			`{"id":"1","weight":2,"lines":[{"sku":"a"}],"to":{"city":"x"},"old":{"er":1},"labels":{"k":1}}`)
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'raw' WHERE id = 2")
		a.Exec("UPDATE poisoned_messages SET consumer_type = 'gone' WHERE id = 3")
		deep := strings.Repeat(`{"x":`, 5000) + "1" + strings.Repeat("}", 5000)
		var wide []string
		for i := range 300 {
			wide = append(wide, fmt.Sprintf(`"x%d":1`, i))
		}
		for text, want := range map[string]poisoned.Edit{
			`{"id":"1","weight":2,"lines":[{"sku":"a"}],"to":{"city":"x"},"old":{"er":1},"labels":{"k":1}}`:                                     {Unknown: []string{"old"}},
			`{"ID":"1","weight":2,"lines":[{"sku":"a","skew":1},{"skew":2}],"to":{"town":"x"},"old":{},"labels":{"k":{"v":1}},"own":{"any":1}}`: {Unknown: []string{"lines[].skew", "old", "to.town"}, Missing: []string{"id", "old.er", "to.city"}},
			`{"Hidden":1,"to":null,"labels":null,"lines":[]}`:                                                                                   {Unknown: []string{"Hidden"}, Missing: []string{"id", "lines[].sku", "labels.k", "old", "to.city", "weight"}},
			`{"labels":` + deep + `}`:                        {Missing: []string{"id", "labels.k", "lines", "old", "to", "weight"}},
			`{` + strings.Join(wide, ",") + `,"a\u0000b":1}`: {More: true},
		} {
			got, err := s.CheckEdit(ctx, db, 1, []byte(text))
			if want.More {
				if !got.More || len(got.Unknown) != 100 || len(got.Missing) != 6 {
					t.Errorf("wide: got %+v, want the first 100", got)
				}
				continue
			}
			if err != nil || !equalSets(got, want) {
				t.Errorf("%.100s: got %+v, %v, want %+v", text, got, err, want)
			}
		}
		for name, test := range map[string]struct {
			id   int64
			text string
			want error
		}{
			"no JSON": {1, `{`, poison.ErrPayload}, "another type": {1, `{"id":1}`, poison.ErrPayload}, "no type": {2, `{}`, errors.ErrUnsupported},
			"no consumer": {3, `{}`, bus.ErrNoConsumer}, "no message": {4, `{}`, poison.ErrNotFound},
		} {
			if _, err := s.CheckEdit(ctx, db, test.id, []byte(test.text)); !errors.Is(err, test.want) {
				t.Errorf("%s: got %v, want %v", name, err, test.want)
			}
		}
		registry := testapp.Must[*bus.Registry](t)(bus.RegistryConfig{Codec: otherCodec{}}.NewRegistry(testapp.Counting("p", &n)))
		if _, err := testapp.Must[*poisoned.Store](t)(poisoned.NewStore(registry)).CheckEdit(ctx, db, 1, []byte("{}")); !errors.Is(err,
			errors.ErrUnsupported) {
			t.Errorf("another codec: got %v, want that there is no telling", err)
		}
	})
}

type otherCodec struct{}

func (otherCodec) Encode(payload any) ([]byte, error) { return json.Marshal(payload) }
func (otherCodec) Decode(text []byte, into any) error { return json.Unmarshal(text, into) }

// equalSets compares without the order.
func equalSets(a, b poisoned.Edit) bool {
	set := func(names []string) map[string]bool {
		s := make(map[string]bool)
		for _, name := range names {
			s[name] = true
		}
		return s
	}
	return reflect.DeepEqual(set(a.Unknown), set(b.Unknown)) && reflect.DeepEqual(set(a.Missing), set(b.Missing)) && !a.More
}
