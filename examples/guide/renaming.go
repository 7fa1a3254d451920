package guide

import (
	"context"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// snippet: renamed

// OrderShipped was formerly stored as "order.sent".
type OrderShipped struct {
	OrderID string `json:"order_id"`
	Carrier string `json:"carrier"` // new: empty in old messages
}

// PayloadType is the new name.
func (OrderShipped) PayloadType() string { return "order.shipped" }

// NewTracking also consumes messages with the former names.
func NewTracking(track func(context.Context, OrderShipped) error) bus.Consumer {
	return bus.Consume("track-parcel", track,
		bus.Aliases("follow-parcel"),     // former consumer name
		bus.PayloadAliases("order.sent")) // former payload type
}

// end
