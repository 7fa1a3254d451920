package guide

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// KeptMail is a consumer whose messages are kept for a week.
func KeptMail(send func(context.Context, OrderPlaced) error) bus.Consumer {
	// snippet: keep
	return bus.Consume("mail", send, bus.Keep(7*24*time.Hour), bus.KeepPayload())
	// end
}

// ShowMail prints what became of the mails of an order, which were produced with outbox.Header("order", order).
func ShowMail(ctx context.Context, db bun.IDB, client *admin.Client, order string, out io.Writer) error {
	// snippet: consumed
	found, _, err := client.Consumed(ctx, db, admin.ConsumedFilter{Consumer: "mail", Header: "order", Value: order}, admin.Page{})
	if err != nil {
		return err
	}
	for _, m := range found {
		fmt.Fprintln(out, m.ID, m.Outcome, m.FinishedAt, m.RunTime, m.Version, string(m.Payload))
	}
	// end
	return nil
}

// SendAgain repeats a mail.
func SendAgain(ctx context.Context, db *bun.DB, client *admin.Client, id int64) error {
	// snippet: repeat
	_, err := client.Repeat(ctx, db, id)
	// end
	return err
}
