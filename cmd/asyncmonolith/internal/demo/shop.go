package demo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog/projection"
)

// The versions of the shop's program: the newer one came a while ago, and not everywhere yet.
const (
	oldVersion = "v1.7.2"
	newVersion = "v1.8.0"
)

// The names by which the shop's consumers are stored.
const (
	receipts  = "send-receipt"
	webhooks  = "deliver-webhook"
	invoices  = "render-invoice"
	charges   = "charge-card"
	searching = "update-search-index"
	parcels   = "ship-parcel"
	catalogue = "import-catalogue"
	closing   = "close-day"
	faxes     = "send-fax" // of a program that is gone
)

type orderPlaced struct {
	Order int    `json:"order"`
	Email string `json:"email"`
}

type paymentDue struct {
	Order  int    `json:"order"`
	Amount string `json:"amount"`
	Card   string `json:"card"`
}

type productChanged struct {
	Product int `json:"product"`
}

type parcelPacked struct {
	Order      int    `json:"order"`
	PostalCode string `json:"postal_code"`
}

type catalogueReceived struct {
	Supplier string `json:"supplier"`
	Page     int    `json:"page"`
}

type dayClosed struct {
	Shop string `json:"shop"`
}

type reportDue struct {
	Template string `json:"template"`
}

type faxWanted struct {
	Order int `json:"order"`
}

func (orderPlaced) PayloadType() string       { return "order.placed" }
func (paymentDue) PayloadType() string        { return "payment.due" }
func (productChanged) PayloadType() string    { return "product.changed" }
func (parcelPacked) PayloadType() string      { return "parcel.packed" }
func (catalogueReceived) PayloadType() string { return "catalogue.received" }
func (dayClosed) PayloadType() string         { return "day.closed" }
func (reportDue) PayloadType() string         { return "report.due" }
func (faxWanted) PayloadType() string         { return "fax.wanted" }

// amountBooked is an event of an account.
type amountBooked struct {
	Cents    int    `json:"cents"`
	Currency string `json:"currency"`
}

func (amountBooked) PayloadType() string { return "amount.booked" }

// shop is what the consumers know of the world.
type shop struct {
	mailBack   atomic.Bool // the mail server has come back
	hooksBack  atomic.Bool // as has the partner who is told of orders
	unhurried  atomic.Bool // consumers take as long as real ones do
	searchFull atomic.Int64
}

// takes has a consumer take its time.
func (s *shop) takes(ctx context.Context, d time.Duration) error {
	if !s.unhurried.Load() {
		d /= 100 // a morning takes a moment
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// now is a backoff for failures that are to be seen at once.
func now(int) time.Duration { return 20 * time.Millisecond }

func (s *shop) consumers() []bus.Consumer {
	return []bus.Consumer{
		bus.Consume(receipts, s.sendReceipt, bus.MaxAttempts(2), bus.Backoff(now)),
		bus.Consume(webhooks, s.deliverWebhook, bus.MaxAttempts(2), bus.Backoff(now)),
		bus.Consume(invoices, s.renderInvoice, bus.Concurrency(2), bus.MaxAttempts(1)),
		bus.Consume(charges, s.chargeCard),
		bus.Consume(searching, s.updateSearchIndex),
		bus.Consume(parcels, s.shipParcel, bus.Ordered(bus.BlockKey)),
		bus.Consume(catalogue, func(ctx context.Context, _ catalogueReceived) error { return s.takes(ctx, 40*time.Millisecond) }),
		bus.Consume(closing, func(ctx context.Context, _ dayClosed) error { return s.takes(ctx, 100*time.Millisecond) }),
		bus.Consume(closing+"-report", func(context.Context, reportDue) error { return nil }),
	}
}

func (s *shop) sendReceipt(ctx context.Context, o orderPlaced) error {
	if o.Order%61 == 7 {
		return bus.Permanent(fmt.Errorf("smtp: 550 5.1.1 <%s>: recipient address rejected: mailbox unavailable", o.Email))
	}
	if !s.mailBack.Load() && o.Order%7 == 3 {
		return fmt.Errorf("smtp: dial tcp 10.0.4.25:587: connect: connection refused (order %d)", o.Order)
	}
	return s.takes(ctx, 20*time.Millisecond)
}

func (s *shop) deliverWebhook(ctx context.Context, o orderPlaced) error {
	if !s.hooksBack.Load() && o.Order%11 == 5 {
		return fmt.Errorf("post https://hooks.partner.example/orders/%d: 503 Service Unavailable", o.Order)
	}
	return s.takes(ctx, 120*time.Millisecond)
}

func (s *shop) renderInvoice(ctx context.Context, o orderPlaced) error {
	if o.Order%89 == 11 {
		var font *struct{ size int }
		_ = font.size // a mistake such as people make
	}
	return s.takes(ctx, time.Duration(300+o.Order%5*400)*time.Millisecond)
}

// errDeclined is what the bank says.
var errDeclined = errors.New("card declined: insufficient funds")

func (s *shop) chargeCard(ctx context.Context, p paymentDue) error {
	switch {
	case p.Amount == "" || p.Amount[len(p.Amount)-3] == ',':
		return bus.Permanent(fmt.Errorf("charge order %d: amount %q: expected digits and a point", p.Order, p.Amount))
	case p.Card == "4000":
		return bus.Permanent(fmt.Errorf("charge order %d: %w", p.Order, errDeclined))
	}
	return s.takes(ctx, 60*time.Millisecond)
}

func (s *shop) updateSearchIndex(ctx context.Context, p productChanged) error {
	if p.Product%13 == 4 && s.searchFull.Add(-1) >= 0 {
		return bus.RetryAfter(time.Duration(10+p.Product%40)*time.Minute, fmt.Errorf("search: product %d: 429 Too Many Requests", p.Product))
	}
	return s.takes(ctx, 5*time.Millisecond)
}

func (s *shop) shipParcel(ctx context.Context, p parcelPacked) error {
	if p.PostalCode == "00000" {
		return bus.Permanent(fmt.Errorf("carrier: order %d: postal code %q is not known", p.Order, p.PostalCode))
	}
	return s.takes(ctx, 80*time.Millisecond)
}

// balances is up to date, but for events of a currency that it does not know; sales is behind.
func (s *shop) balances() projection.Projection {
	return projection.Projection{Name: "balances", OnError: projection.Park, MaxAttempts: 1, On: []projection.Handler{
		projection.On(func(_ context.Context, _ bun.Tx, e amountBooked) error {
			if e.Currency == "XBT" {
				return fmt.Errorf("currency %q: no rate is known", e.Currency)
			}
			return nil
		})}}
}

func (s *shop) sales() projection.Projection {
	return projection.Projection{Name: "sales-by-day", On: []projection.Handler{
		projection.On(func(context.Context, bun.Tx, amountBooked) error { return nil })}}
}

func events() (*eventlog.Types, error) { return eventlog.NewTypes(eventlog.Event[amountBooked]()) }
