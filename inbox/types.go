package inbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// acceptedFor is how long a stored type counts. Instances store their types every forgetEvery, and
// may restart in between.
const acceptedFor = 3 * time.Minute

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
		t.outage.Failed("read the accepted types", err)
		t.state.failed(err)
		return fmt.Errorf("inbox: receiver %q: read the accepted types: %w", t.receiver.name, err)
	}
	for _, eventType := range kept {
		if slices.Contains(unknown, eventType) {
			return &newerError{eventType: eventType}
		}
	}
	return nil
}
