package inbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/cloudevents"
)

// acceptedFor is how long a stored type counts. Instances store their types every forgetEvery, and
// may restart in between.
const acceptedFor = 3 * time.Minute

// newerError reports a record that another instance accepts and this one does not, or a schema that
// this one does not know.
type newerError struct {
	eventType string
	schema    int // 0: the type is unknown
}

func (e *newerError) Error() string {
	if e.schema > 0 {
		return fmt.Sprintf("schema %d of type %q is not known: a newer release has written it", e.schema, cloudevents.Short(e.eventType))
	}
	return fmt.Sprintf("another instance of the receiver accepts type %q, which this one lacks", cloudevents.Short(e.eventType))
}

// typeTable has the types that each instance of the receiver accepts. During a rolling deploy,
// instances of two releases run one receiver. An instance that lacks a type of another instance
// returns its records to the broker, because acknowledging them as unknown would lose them.
type typeTable struct {
	*services
	receiver *receiver
	state    *state
}

// announce stores the types that this instance accepts.
func (t *typeTable) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := t.store.Inbox.KeepTypes(ctx, t.db, t.receiver.name, slices.Collect(maps.Keys(t.receiver.types)), acceptedFor); err != nil {
		return fmt.Errorf("receiver %q: store its types: %w", t.receiver.name, err)
	}
	return nil
}

// mayIgnore returns a newerError if another instance accepts one of the types. It queries before
// each acknowledgement, because an instance that accepts more may just have started.
func (t *typeTable) mayIgnore(ctx context.Context, unknown ...string) error {
	if len(unknown) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	kept, err := t.store.Inbox.KeptTypes(ctx, t.db, t.receiver.name)
	if err != nil {
		t.outage.Failed("look which types are accepted", err)
		t.state.failed(err)
		return fmt.Errorf("inbox: receiver %q: look which types are accepted: %w", t.receiver.name, err)
	}
	for _, eventType := range kept {
		if slices.Contains(unknown, eventType) {
			return &newerError{eventType: eventType}
		}
	}
	return nil
}
