package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/outbox"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
	"github.com/asyncmonolith/asyncmonolith-go/schedule"
)

// tell is the story: what the application does, step by step, while its
// consumers run in the background.
func tell(ctx context.Context, p parts, story *Story) error {
	for _, step := range []func(context.Context, parts, *Story) error{
		placeOrder, rollBack, countStockEverySecond, requeuePoisoned,
	} {
		if err := step(ctx, p, story); err != nil {
			return err
		}
	}
	return waitUntilDone(ctx, p)
}

// waitUntilDone waits until no message is left, or ctx ends.
func waitUntilDone(ctx context.Context, p parts) error {
	for {
		left, err := p.DB.NewSelect().Table("consumer_messages").Count(ctx)
		if err != nil || left == 0 {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// placeOrder writes the order and its messages in one transaction: either both
// are committed or neither is.
func placeOrder(ctx context.Context, p parts, story *Story) error {
	order := Order{ID: "o-1"}
	// snippet: produce
	err := p.Producer.RunInTx(ctx, p.DB, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
			return err
		}
		if _, err := p.Producer.Produce(ctx, tx, OrderPlaced{OrderID: order.ID}); err != nil {
			return err
		}
		_, err := p.Producer.Produce(ctx, tx, FeedbackDue{OrderID: order.ID},
			outbox.Delay(1500*time.Millisecond), outbox.InsertID("feedback:"+order.ID))
		return err
	})
	// end
	if err != nil {
		return err
	}
	story.tell("shop", "order %s is committed, and with it 4 messages and a delayed one", order.ID)
	again, err := p.Producer.Produce(ctx, p.DB, FeedbackDue{OrderID: order.ID}, outbox.InsertID("feedback:"+order.ID))
	if err != nil {
		return err
	}
	story.tell("shop", "the same insert id once more: %d written, %d duplicate", again.Enqueued, again.Duplicates)
	return nil
}

// rollBack shows that what is not committed is never heard of.
func rollBack(ctx context.Context, p parts, story *Story) error {
	lost := errors.New("the customer changed their mind")
	err := p.Producer.RunInTx(ctx, p.DB, func(ctx context.Context, tx bun.Tx) error {
		if _, err := p.Producer.Produce(ctx, tx, OrderPlaced{OrderID: "o-2"}); err != nil {
			return err
		}
		return lost
	})
	if !errors.Is(err, lost) {
		return fmt.Errorf("placing o-2: %w", err)
	}
	story.tell("shop", "order o-2 is rolled back, so no service receives it")
	return nil
}

// countStockEverySecond schedules a payload, and ends the schedule after two.
func countStockEverySecond(ctx context.Context, p parts, story *Story) error {
	// snippet: schedule
	_, err := p.Scheduler.Upsert(ctx, p.DB, StockCountDue{}, "* * * * * *", "Europe/Amsterdam",
		schedule.Name("count-stock"), schedule.Tag("stock"))
	// end
	if err != nil {
		return err
	}
	story.tell("shop", "stock is counted every second from now on")
	if err := story.wait(ctx, "count-stock", 2); err != nil {
		return err
	}
	n, err := p.Scheduler.DeleteByTag(ctx, p.DB, "stock")
	if err != nil {
		return err
	}
	story.tell("shop", "enough counting: %d schedule deleted", n)
	return nil
}

// requeuePoisoned mends what was wrong and has the poisoned message run again.
func requeuePoisoned(ctx context.Context, p parts, story *Story) error {
	if err := story.wait(ctx, "notify-warehouse failed", 3); err != nil {
		return err
	}
	list := func() ([]poison.Message, error) {
		found, _, err := p.Poisoned.List(ctx, p.DB, poison.Filter{Consumer: "notify-warehouse"}, admin.Page{})
		return found, err
	}
	found, err := list()
	for ; err == nil && len(found) == 0; found, err = list() { // the last attempt has failed, but is not settled yet
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	story.tell("shop", "the fire is out: %d poisoned message is requeued (%s)", len(found), found[0].Reason)
	p.Shop.warehouseWorks.Store(true)
	// snippet: requeue
	result, err := p.Poisoned.RequeueWhere(ctx, p.DB, poison.Filter{Consumer: "notify-warehouse"}, 100)
	// end
	if err != nil || result.Requeued != len(found) {
		return fmt.Errorf("requeue: %+v, %w", result, err)
	}
	return story.wait(ctx, "notify-warehouse", 1)
}
