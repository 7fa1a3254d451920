package guide

import (
	"context"
	"encoding/json"
	"math"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// snippet: upcast

// InvoiceSent had a field "amount" in euros in schema 1.
type InvoiceSent struct {
	OrderID string `json:"order_id"`
	Cents   int64  `json:"cents"`
}

// PayloadType is unchanged.
func (InvoiceSent) PayloadType() string { return "invoice.sent" }

// Upcasters converts stored payloads of schema 1. New ones have schema 2.
func (InvoiceSent) Upcasters() []bus.Upcaster { return []bus.Upcaster{fromEuros} }

func fromEuros(_ context.Context, text []byte) ([]byte, error) {
	var old struct {
		OrderID string  `json:"order_id"`
		Amount  float64 `json:"amount"`
	}
	if err := json.Unmarshal(text, &old); err != nil {
		return nil, err
	}
	return json.Marshal(InvoiceSent{OrderID: old.OrderID, Cents: int64(math.Round(old.Amount * 100))})
}

// end
