package admin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
)

// A filter can be part of a request or a link.
func ExampleFilter() {
	text, err := json.Marshal(admin.Filter{Consumer: "send-receipt", State: admin.Ready, OlderThan: time.Hour})
	fmt.Println(string(text), err)
	// Output:
	// {"consumer":"send-receipt","state":"ready","older_than":3600000000000} <nil>
}

// Explain why a message does not run.
func ExampleClient_Explain() {
	var (
		ctx    = context.Background()
		db     *bun.DB // opened by the application
		client *admin.Client
	)
	e, err := client.Explain(ctx, db, 42)
	switch {
	case err != nil: // admin.ErrNotFound: it was consumed, or cancelled
		fmt.Println(err)
	case e.Reason == admin.Paused:
		fmt.Println("resume", e.Message.Consumer)
	default:
		fmt.Println(e.Text) // Due in 1m30s, at 2026-01-02 03:04:05 UTC.
	}
}

// List reads messages page by page. Page.After can be part of a link.
func ExampleClient_List() {
	var (
		ctx    = context.Background()
		db     *bun.DB // opened by the application
		client *admin.Client
	)
	stale := admin.Filter{Consumer: "send-receipt", State: admin.Ready, OlderThan: time.Hour}
	for page := new(admin.Page); page != nil; {
		messages, next, err := client.List(ctx, db, stale, *page)
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

// Running messages are not cancelled. The result lists them.
func ExampleClient_Cancel() {
	var (
		ctx    = context.Background()
		db     *bun.DB // opened by the application
		client *admin.Client
	)
	result, err := client.Cancel(ctx, db, 41, 42, 43)
	fmt.Println(result.Changed, "cancelled, too late for", result.Running, result.Missing, err)
}

// Keep the messages of a consumer while its provider is down.
func ExampleClient_Pause() {
	var (
		ctx    = context.Background()
		db     *bun.DB // opened by the application
		client *admin.Client
	)
	if err := client.Pause(ctx, db, "charge-card", admin.PauseNote{By: "ann", Reason: "the provider is down"}); err != nil {
		fmt.Println(err)
		return
	}
	// Once it is back:
	if err := client.Resume(ctx, db, "charge-card"); err != nil {
		fmt.Println(err)
	}
}

// Count the messages of each consumer.
func ExampleClient_Queues() {
	var (
		ctx    = context.Background()
		db     *bun.DB // opened by the application
		client *admin.Client
	)
	queues, err := client.Queues(ctx, db)
	for _, q := range queues {
		fmt.Println(q.Consumer, q.Ready, "ready,", q.Poisoned, "poisoned, oldest", q.OldestReady, "registered:", q.Registered, "paused:",
			!q.PausedAt.IsZero())
	}
	fmt.Println(err)
}

// Run messages now that wait for their next attempt.
func ExampleClient_RunNow() {
	var (
		ctx    = context.Background()
		db     *bun.DB // opened by the application
		client *admin.Client
	)
	result, err := client.RunNow(ctx, db, 41, 42)
	fmt.Println(result.Changed, "are due, under way already:", result.Running, "gone:", result.Missing, err)
}
