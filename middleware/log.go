package middleware

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
)

// Log writes one line per run. The level is Info when the message is done, snoozed or released. It
// is Warn when the message failed, is discarded, or runs again without having failed
// ([bus.ErrNotCounted]), and Error when it is poisoned. An error that is a slog.Leveler sets the
// level itself. Error texts are cut at 8 KiB. For an event, the line has its stream, version and
// position. A replayed or backlog message has the attribute mode. Payloads and headers are never
// logged. A nil logger means slog.Default().
func Log(logger *slog.Logger) bus.Middleware {
	logger = cmp.Or(logger, slog.Default())
	return func(next bus.Handler) bus.Handler {
		return func(ctx context.Context, m *bus.Message) error {
			start := time.Now()
			err := next(ctx, m)
			v := bus.OutcomeOf(err)
			level, text := lineFor(v.Outcome)
			if v.Outcome == bus.Snoozed && errors.Is(v.Err, bus.ErrNotCounted) {
				level, text = slog.LevelWarn, "message snoozed, attempt not counted"
			}
			level = levelOf(v.Err, level)
			if !logger.Enabled(ctx, level) {
				return err
			}
			attrs := []slog.Attr{
				slog.String("message_id", m.ID.String()),
				slog.String("consumer", m.Consumer),
				slog.String("payload_type", m.PayloadType),
				slog.Int("attempt", m.Attempt),
				slog.String("outcome", v.Outcome.String()),
				slog.Duration("duration", time.Since(start)),
			}
			if e := m.Event; e != nil {
				attrs = append(attrs, slog.String("stream", e.Stream), slog.Int64("event_version", e.Version))
				if e.Position > 0 {
					attrs = append(attrs, slog.Int64("position", e.Position))
				}
			}
			if mode := access.Mode(m); mode != "" {
				attrs = append(attrs, slog.String("mode", mode))
			}
			if v.Delay > 0 {
				attrs = append(attrs, slog.Duration("delay", v.Delay))
			}
			if v.Reason != "" {
				attrs = append(attrs, slog.String("reason", v.Reason))
			}
			if v.Err != nil {
				attrs = append(attrs, slog.String("error", errorlog.Text(v.Err)))
				if p, ok := errors.AsType[*bus.PanicError](v.Err); ok && p != nil {
					attrs = append(attrs, slog.String("stack", string(p.Stack)))
				}
			}
			logger.LogAttrs(ctx, level, text, attrs...)
			return err
		}
	}
}

// leveled is an error that sets its own log level.
type leveled interface {
	error
	slog.Leveler
}

// levelOf returns the error's own level. A panic of the error must not become the outcome of the
// run.
func levelOf(err error, otherwise slog.Level) (level slog.Level) {
	defer func() {
		if recover() != nil {
			level = otherwise
		}
	}()
	if asked, ok := errors.AsType[leveled](err); ok {
		return asked.Level()
	}
	return otherwise
}

func lineFor(o bus.Outcome) (slog.Level, string) {
	switch o {
	case bus.Done:
		return slog.LevelInfo, "message done"
	case bus.Snoozed:
		return slog.LevelInfo, "message snoozed"
	case bus.Released:
		return slog.LevelInfo, "message released"
	case bus.Discarded:
		return slog.LevelWarn, "message discarded"
	case bus.Poisoned:
		return slog.LevelError, "message poisoned"
	}
	return slog.LevelWarn, "message failed, will be retried"
}
