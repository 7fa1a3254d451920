package main

import (
	"context"
	"fmt"
	"os"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Fulfil is produced once for each order.
type Fulfil struct {
	Order int `json:"order"`
}

// PayloadType is its name in the tables.
func (Fulfil) PayloadType() string { return "order.fulfil" }

// CloseDay is produced when all orders of a day are fulfilled.
type CloseDay struct {
	Day string `json:"day"`
}

// PayloadType is its name in the tables.
func (CloseDay) PayloadType() string { return "day.close" }

// Receipt is what the payment provider answers.
type Receipt struct {
	Number string `json:"number"`
}

// shop has the consumers.
type shop struct {
	dies bool // in the middle of the last step of order 17
}

// snippet: steps
func (s *shop) fulfil(ctx context.Context, order Fulfil) error {
	shelf, err := outbox.Step(ctx, "reserve", func(ctx context.Context) (string, error) {
		return s.reserve(ctx, order)
	})
	if err != nil {
		return err
	}
	receipt, err := outbox.Step(ctx, "charge", func(ctx context.Context) (Receipt, error) {
		return s.charge(ctx, order)
	})
	if err != nil {
		return err
	}
	_, err = outbox.Step(ctx, "ship", func(ctx context.Context) (string, error) {
		return s.ship(ctx, order, shelf, receipt)
	})
	return err
}

// end

func (s *shop) reserve(_ context.Context, order Fulfil) (string, error) {
	fmt.Printf("  order %d: reserved\n", order.Order)
	return "shelf 7", nil
}

func (s *shop) charge(_ context.Context, order Fulfil) (Receipt, error) {
	fmt.Printf("  order %d: charged\n", order.Order)
	return Receipt{Number: fmt.Sprintf("R-%d", order.Order)}, nil
}

func (s *shop) ship(_ context.Context, order Fulfil, shelf string, receipt Receipt) (string, error) {
	if s.dies && order.Order == 17 {
		fmt.Printf("  order %d: the process is killed while it ships\n", order.Order)
		os.Exit(9)
	}
	fmt.Printf("  order %d: shipped from %s, receipt %s\n", order.Order, shelf, receipt.Number)
	return "parcel", nil
}

func (s *shop) closeDay(_ context.Context, day CloseDay) error {
	fmt.Printf("  %s: all orders are shipped\n", day.Day)
	return nil
}
