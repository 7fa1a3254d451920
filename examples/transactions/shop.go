package main

import (
	"context"
	"errors"
)

// Order is a row of the table orders, for GORM, sqlx and Bun.
type Order struct {
	ID      string
	Item    string
	Handled int // by how many consumers
}

// OrderPlaced is the payload.
type OrderPlaced struct {
	OrderID string `json:"order_id"`
}

// PayloadType is the name under which it is stored.
func (OrderPlaced) PayloadType() string { return "order.placed" }

// shop places an order, and produces, in one transaction of its library.
type shop interface {
	PlaceOrder(ctx context.Context, order Order) error
}

var errSoldOut = errors.New("sold out")

// checkStock is the last step of placing an order: its error rolls the transaction back.
func checkStock(order Order) error {
	if order.Item == "unicorn" {
		return errSoldOut
	}
	return nil
}
