package poison_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/admin"
	"github.com/asyncmonolith/asyncmonolith-go/poison"
)

// In JSON a message has its payload as it is, so that an endpoint of the application can return it.
func ExampleMessage() {
	text, err := json.MarshalIndent(poison.Message{
		ID: 42, Consumer: "charge-card", PayloadType: "order.placed", Payload: []byte(`{"order_id":"o-1"}`), Attempts: 1,
		Reason: "permanent error", Errors: []admin.Attempt{{Attempt: 1, Error: "card declined"}},
	}, "", "  ")
	fmt.Println(string(text), err)
	// Output:
	// {
	//   "id": 42,
	//   "message_id": "00000000-0000-0000-0000-000000000000",
	//   "consumer": "charge-card",
	//   "payload_type": "order.placed",
	//   "attempts": 1,
	//   "crashes": 0,
	//   "reason": "permanent error",
	//   "errors": [
	//     {
	//       "attempt": 1,
	//       "error": "card declined"
	//     }
	//   ],
	//   "payload": {
	//     "order_id": "o-1"
	//   }
	// } <nil>
}

// List reads all poisoned messages, page by page.
func ExampleStore_List() {
	var (
		ctx   = context.Background()
		db    *bun.DB // opened by the application
		store *poison.Store
	)
	filter := poison.Filter{Consumer: "charge-card", PoisonedAfter: time.Now().Add(-24 * time.Hour)}
	for page := (&admin.Page{Size: 100}); page != nil; {
		messages, next, err := store.List(ctx, db, filter, *page)
		if err != nil {
			fmt.Println(err)
			return
		}
		for _, m := range messages {
			fmt.Println(m.ID, m.Reason, string(m.Payload), m.Errors)
		}
		page = next
	}
}

// After a fix, requeue all messages of a consumer.
func ExampleStore_RequeueWhere() {
	var (
		ctx   = context.Background()
		db    *bun.DB // opened by the application
		store *poison.Store
	)
	result, err := store.RequeueWhere(ctx, db, poison.Filter{Consumer: "charge-card", Error: "card terminal"}, 10_000)
	fmt.Println(result.Requeued, result.Unhandled, result.Conflicts, err)
}

// Requeue a message with a corrected payload.
func ExampleStore_EditAndRequeue() {
	var (
		ctx   = context.Background()
		db    *bun.DB // opened by the application
		store *poison.Store
	)
	err := store.EditAndRequeue(ctx, db, 42, order{})
	switch {
	case errors.Is(err, poison.ErrNotFound):
		fmt.Println("it was changed meanwhile")
	case errors.Is(err, poison.ErrConflict):
		fmt.Println("its insert id is pending again: discard it, or wait")
	case err != nil:
		fmt.Println(err)
	}
}
