package inbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/access"
)

// acceptedFor is how long a stored type counts. Instances store their types every forgetEvery, and
// may restart in between.
const acceptedFor = 3 * time.Minute

// typeTable has the types that each instance of the receiver accepts, and their consumers. During a
// rolling deploy, instances of two releases run one receiver. An instance that lacks a type or a
// consumer of another instance returns its records to the broker: acknowledging them as unknown would
// lose them, and parking them would withhold them from all consumers.
type typeTable struct {
	*services
	receiver *receiver
	state    *state
}

// consumerOf is the entry of a type's consumer. An unknown type has no tab.
func consumerOf(eventType, name string) string { return eventType + "\t" + name }

// accepted returns the entries of this instance.
func (t *typeTable) accepted() []string {
	all := slices.Collect(maps.Keys(t.receiver.types))
	for eventType, payloadType := range t.receiver.types {
		for _, consumer := range access.ConsumersOf(t.registry, payloadType) {
			for _, name := range access.Names(consumer) {
				all = append(all, consumerOf(eventType, name))
			}
		}
	}
	return all
}

// announce stores what this instance accepts.
func (t *typeTable) announce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	if err := t.store.Inbox.KeepTypes(ctx, t.db, t.receiver.name, t.accepted(), acceptedFor); err != nil {
		return fmt.Errorf("receiver %q: store its types: %w", t.receiver.name, err)
	}
	return nil
}

// mayIgnore returns a newerError if another instance accepts one of the types, or has one of the
// consumers. It queries before each acknowledgement, because an instance that accepts more may just have started.
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
	for _, entry := range kept {
		if slices.Contains(unknown, entry) {
			eventType, consumer, _ := strings.Cut(entry, "\t")
			return &newerError{eventType: eventType, consumer: consumer}
		}
	}
	return nil
}
