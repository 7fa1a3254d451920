package access

import (
	"context"
	"database/sql"
	"math"
	"reflect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/access/hook"
)

// CheckPayload decodes a payload in the newest schema for a consumer without consuming it.
func CheckPayload(c bus.Consumer, codec bus.Codec, payload []byte) error {
	return hook.Bus.CheckPayload(c, codec, &bus.Message{Payload: payload})
}

// CheckStored is [CheckPayload] for a stored message, of any schema. [IsNewer] is true for the error
// if the consumer does not know the schema.
func CheckStored(c bus.Consumer, codec bus.Codec, m *bus.Message) error {
	return hook.Bus.CheckPayload(c, codec, m)
}

// GoType returns the payload's type, or nil for a consumer made by bus.ConsumeRaw.
func GoType(c bus.Consumer) reflect.Type { return hook.Bus.GoType(c) }

// Reject makes NewRegistry reject the consumer. It is for options of other packages than bus. The
// text must state what is wrong and what is allowed.
func Reject(c *bus.ConsumerConfig, text string) { hook.Bus.Reject(c, text) }

// NewestName returns the current name of an event, given its current name or one that
// eventlog.Types has as a former name. It returns other payload types unchanged.
func NewestName(c *bus.ConsumerConfig, payloadType string) string {
	return hook.Bus.NewestName(c, payloadType)
}

// Names returns the names under which a consumer's messages are stored: its name, then its aliases.
func Names(c bus.Consumer) []string { return append([]string{c.Name()}, c.Config().Aliases...) }

// PayloadTypes returns the payload types that a consumer handles: its own, then its aliases.
func PayloadTypes(c bus.Consumer) []string {
	return append([]string{c.PayloadType()}, c.Config().PayloadAliases...)
}

// Keyed reports whether a consumer uses the keys of messages.
func Keyed(c *bus.ConsumerConfig) bool { return c.Ordered != 0 || KeyConcurrency(c) > 0 }

// KeyConcurrency returns how many messages of one key may run at once, in any order. Zero means
// that the consumer runs them in order, or ignores keys.
func KeyConcurrency(c *bus.ConsumerConfig) int {
	switch {
	case c.Ordered != 0:
		return 0
	case c.Fair || c.KeyConcurrency == 0 && c.KeyRate > 0:
		return math.MaxInt32
	}
	return c.KeyConcurrency
}

// Raw reports whether the consumer was made by bus.ConsumeRaw.
func Raw(c bus.Consumer) bool { return hook.Bus.Raw(c) }

// SetValue stores a setting of another package than bus. As with context values, key should be of
// an unexported type of that package.
func SetValue(c *bus.ConsumerConfig, key, value any) { hook.Bus.SetValue(c, key, value) }

// Value returns what [SetValue] stored under key, or nil.
func Value(c *bus.ConsumerConfig, key any) any { return hook.Bus.Value(c, key) }

type databaseCheckKey struct{}

// SetDatabaseCheck has outbox.Processor.Check call a function with the processor's database. Of several
// consumers with such a function, only the first one's is called.
func SetDatabaseCheck(c *bus.ConsumerConfig, check func(ctx context.Context, db *sql.DB) error) {
	SetValue(c, databaseCheckKey{}, check)
}

// DatabaseCheck returns what [SetDatabaseCheck] stored, or nil.
func DatabaseCheck(c *bus.ConsumerConfig) func(ctx context.Context, db *sql.DB) error {
	check, _ := Value(c, databaseCheckKey{}).(func(ctx context.Context, db *sql.DB) error)
	return check
}

// ConsumeBatch is bus.Consumer.Consume for several messages and returns an error or nil for each.
// The consumer must have a BatchSize.
func ConsumeBatch(ctx context.Context, c bus.Consumer, codec bus.Codec, batch []*bus.Message) []error {
	return hook.Bus.ConsumeBatch(ctx, c, codec, batch)
}
