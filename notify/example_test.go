package notify_test

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
)

// Every process has a notifier. A process with processors also needs a Listener, such as that of
// notify/pgxnotify.
func ExampleNewNotifier() {
	run := func(ctx context.Context, db *bun.DB, registry *bus.Registry) error {
		notifier, err := notify.NewNotifier(db, registry, notify.NotifierConfig{})
		if err != nil {
			return err
		}
		return notifier.Run(ctx) // until ctx ends
	}
	fmt.Println(run(context.Background(), nil, nil))
	// Output: notify: NewNotifier: the database handle or the registry is nil
}

// Health can serve a readiness probe. Without notifications, messages are found by the next poll.
func ExampleNotifier_Health() {
	var notifier *notify.Notifier
	health := notifier.Health()
	fmt.Println(health.Ready, health.Err)
}
