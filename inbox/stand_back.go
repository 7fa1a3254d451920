package inbox

import (
	"context"
	"fmt"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
	"github.com/asyncmonolith/asyncmonolith-go/internal/errorlog"
	"github.com/asyncmonolith/asyncmonolith-go/internal/outage"
)

// standBackFor is how long an instance leaves the subscription to newer instances.
const standBackFor = 30 * time.Second

// newerError reports a record that another instance accepts and this one does not, or a schema that
// this one does not know.
type newerError struct {
	eventType string
	consumer  string // "": the type or the schema is unknown
	schema    int    // 0: the type or the consumer is unknown
}

func (e *newerError) Error() string {
	if e.schema > 0 {
		return fmt.Sprintf("schema %d of type %q is unknown: a newer release wrote the record", e.schema, cloudevents.Short(e.eventType))
	}
	if e.consumer != "" {
		return fmt.Sprintf("another instance of the receiver has consumer %q for type %q, this instance does not",
			cloudevents.Short(e.consumer), cloudevents.Short(e.eventType))
	}
	return fmt.Sprintf("another instance of the receiver accepts type %q, this instance does not", cloudevents.Short(e.eventType))
}

// standBack leaves the subscription to newer instances for a while.
func (w *worker) standBack(ctx context.Context, reason error) {
	w.logger.Warn("receiver leaves its subscription to newer instances",
		"receiver", w.name, "error", errorlog.Text(reason), "next_try_within", standBackFor)
	w.state.standBack(reason)
	defer w.state.standBack(nil)
	outage.Pause(ctx, standBackFor)
}

// standBack records why newer instances receive; nil means that this one does.
func (s *state) standBack(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newer, s.sum.Paused = absence{}, ""
	if reason != nil {
		s.newer, s.sum.Paused = absence{since: time.Now(), reason: reason}, errorlog.Text(reason)
	}
}
