package outage

import (
	"context"
	"log/slog"
	"time"
)

// Await runs a check, and again, with a backoff, while the database does not answer,
// until the patience is over. It returns what the check returned last.
func Await(ctx context.Context, patience time.Duration, logger *slog.Logger, unavailable func(error) bool, check func(context.Context) error) error {
	deadline := time.Now().Add(patience)
	retry := NewRetry()
	for {
		err := check(ctx)
		wait := retry.NextBackOff()
		if err == nil || !unavailable(err) || time.Now().Add(wait).After(deadline) {
			return err
		}
		logger.Warn("waiting for the database", "error", err, "until", deadline)
		if !Pause(ctx, wait) {
			return err
		}
	}
}
