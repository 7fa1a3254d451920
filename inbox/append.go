package inbox

import (
	"context"
	"errors"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/eventlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/logaccess"
)

// appendToLog appends events in order and erases streams.
func (a *acceptor) appendToLog(ctx context.Context, tx bun.Tx, messages []*bus.Message) error {
	begin := 0
	for i, m := range messages {
		if m.PayloadType != tombstone {
			continue
		}
		if err := logaccess.Import(ctx, a.log, tx, messages[begin:i]...); err != nil {
			return err
		}
		begin = i + 1
		err := a.log.Tombstone(ctx, tx, m.Event.Stream)
		if _, unknown := errors.AsType[*eventlog.ConflictError](err); err != nil && !unknown && !errors.Is(err, eventlog.ErrTombstoned) {
			return err
		}
	}
	return logaccess.Import(ctx, a.log, tx, messages[begin:]...)
}
