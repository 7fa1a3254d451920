package guide

import (
	"context"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// snippet: renamed

// OrderShipped was stored as "order.sent" before.
type OrderShipped struct {
	OrderID string `json:"order_id"`
	Carrier string `json:"carrier"` // new: empty in messages from before
}

// PayloadType is the new name. What is produced from now on has it.
func (OrderShipped) PayloadType() string { return "order.shipped" }

// NewTracking takes what is stored under the former names, too.
func NewTracking(track func(context.Context, OrderShipped) error) bus.Consumer {
	return bus.Consume("track-parcel", track,
		bus.Aliases("follow-parcel"),     // the consumer's former name
		bus.PayloadAliases("order.sent")) // the payload's
}

// end
