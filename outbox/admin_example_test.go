package outbox_test

import (
	"context"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/outbox"
)

// Why does this message not run?
func ExampleAdmin_Explain() {
	var (
		ctx   = context.Background()
		db    *bun.DB // opened by the application
		admin *outbox.Admin
	)
	e, err := admin.Explain(ctx, db, 42)
	switch {
	case err != nil: // outbox.ErrNotFound: it was consumed, or cancelled
		fmt.Println(err)
	case e.Reason == outbox.Paused:
		fmt.Println("resume", e.Message.Consumer)
	default:
		fmt.Println(e.Text) // It is due in 1m30s, at 2026-01-02T03:04:05Z.
	}
}

// List goes through messages page by page. Page.After may travel in a link.
func ExampleAdmin_List() {
	var (
		ctx   = context.Background()
		db    *bun.DB // opened by the application
		admin *outbox.Admin
	)
	stale := outbox.Filter{Consumer: "send-receipt", State: outbox.Ready, OlderThan: time.Hour}
	for page := new(outbox.Page); page != nil; {
		messages, next, err := admin.List(ctx, db, stale, *page)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, m := range messages {
			fmt.Println(m.ID, m.AvailableAt, m.Attempts)
		}
		page = next
	}
}

// What runs already cannot be cancelled.
func ExampleAdmin_Cancel() {
	var (
		ctx   = context.Background()
		db    *bun.DB // opened by the application
		admin *outbox.Admin
	)
	result, err := admin.Cancel(ctx, db, 41, 42, 43)
	fmt.Println(result.Changed, "cancelled, too late for", result.Running, result.Missing, err)
}

// A provider is down: keep its consumer's messages until it is back.
func ExampleAdmin_Pause() {
	var (
		ctx   = context.Background()
		db    *bun.DB // opened by the application
		admin *outbox.Admin
	)
	if err := admin.Pause(ctx, db, "charge-card"); err != nil {
		fmt.Println(err)
		return
	}
	// Once it is back:
	if err := admin.Resume(ctx, db, "charge-card"); err != nil {
		fmt.Println(err)
	}
}

// What waits, and for whom?
func ExampleAdmin_Queues() {
	var (
		ctx   = context.Background()
		db    *bun.DB // opened by the application
		admin *outbox.Admin
	)
	queues, err := admin.Queues(ctx, db)
	for _, q := range queues {
		fmt.Println(q.Consumer, q.Ready, "ready,", q.Poisoned, "poisoned, oldest", q.OldestReady, "registered:", q.Registered, "paused:", !q.PausedAt.IsZero())
	}
	fmt.Println(err)
}

// RunNow has messages that wait for a later attempt run at once.
func ExampleAdmin_RunNow() {
	var (
		ctx   = context.Background()
		db    *bun.DB // opened by the application
		admin *outbox.Admin
	)
	result, err := admin.RunNow(ctx, db, 41, 42)
	fmt.Println(result.Changed, "are due, under way already:", result.Running, "gone:", result.Missing, err)
}
