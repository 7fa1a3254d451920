package notify_test

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/notify"
)

// A process that runs no processors only sends. One that does adds a Listener, such
// as that of notify/pgxnotify.
func ExampleNotifier() {
	run := func(ctx context.Context, db *bun.DB, registry *bus.Registry) error {
		notifier, err := notify.NewNotifier(db, registry, notify.Config{})
		if err != nil {
			return err
		}
		return notifier.Run(ctx) // until ctx ends
	}
	_ = run
}
