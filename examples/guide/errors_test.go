package guide_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/examples/guide"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

func TestErrorsOfProduceHaveAStatus(t *testing.T) {
	f := open(t)
	for name, test := range map[string]struct {
		payload bus.Payload
		want    int
		options []outbox.Option
	}{
		"produced":    {guide.OrderPlaced{OrderID: "o-1"}, http.StatusAccepted, nil},
		"too large":   {guide.OrderPlaced{OrderID: strings.Repeat("x", 2<<20)}, http.StatusRequestEntityTooLarge, nil},
		"no text":     {guide.OrderPlaced{}, http.StatusBadRequest, []outbox.Option{outbox.InsertID("\xff")}},
		"a pointer":   {&guide.OrderPlaced{}, http.StatusBadRequest, nil},
		"no consumer": {guide.AddressChanged{}, http.StatusNotImplemented, nil},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Producer.Produce(f.Context(), f.db, test.payload, test.options...)
			if got := guide.Status(err); got != test.want {
				t.Errorf("got %d for %v, want %d", got, err, test.want)
			}
		})
	}
	_ = f.db.Close()
	if _, err := f.Producer.Produce(f.Context(), f.db, guide.OrderPlaced{OrderID: "o-1"}); guide.Status(err) != http.StatusServiceUnavailable {
		t.Errorf("without a database: got %v", err)
	}
}
