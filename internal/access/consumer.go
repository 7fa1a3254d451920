package access

import (
	"context"
	"database/sql"
	"math"
	"reflect"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/hooks"
)

// Functions of consumers and their settings; immutable.
var (
	// CheckStored decodes the payload of a stored message, of any schema, for a consumer without
	// consuming it. [IsNewer] is true for the error if the consumer does not know the schema.
	CheckStored = hooks.Function[func(c bus.Consumer, codec bus.Codec, m *bus.Message) error]("bus.CheckStored")

	// ConsumeBatch is bus.Consumer.Consume for several messages and returns an error or nil for each.
	// The consumer must have a BatchSize.
	ConsumeBatch = hooks.Function[func(ctx context.Context, c bus.Consumer, codec bus.Codec, batch []*bus.Message) []error]("bus.ConsumeBatch")

	// GoType returns the payload's type, or nil for a consumer made by bus.ConsumeRaw.
	GoType = hooks.Function[func(c bus.Consumer) reflect.Type]("bus.GoType")

	// Raw reports whether the consumer was made by bus.ConsumeRaw.
	Raw = hooks.Function[func(c bus.Consumer) bool]("bus.Raw")

	// Reject makes NewRegistry reject the consumer. It is for options of other packages than bus. The
	// text must state what is wrong and what is allowed.
	Reject = hooks.Function[func(c *bus.ConsumerConfig, text string)]("bus.Reject")

	// NewestName returns the current name of an event, given its current name or one that
	// eventlog.Types has as a former name. It returns other payload types unchanged.
	NewestName = hooks.Function[func(c *bus.ConsumerConfig, payloadType string) string]("bus.NewestName")

	// SetKeyOf has a consumer made by bus.ConsumeRaw read a message's own key from its stored payload.
	SetKeyOf = hooks.Function[func(c *bus.ConsumerConfig, keyOf func(bus.Codec, *bus.Message) (string, error))]("bus.SetKeyOf")

	// SetValue stores a setting of another package than bus. As with context values, key should be of
	// an unexported type of that package.
	SetValue = hooks.Function[func(c *bus.ConsumerConfig, key, value any)]("bus.SetValue")

	// Value returns what [SetValue] stored under key, or nil.
	Value = hooks.Function[func(c *bus.ConsumerConfig, key any) any]("bus.Value")
)

// CheckPayload is [CheckStored] for a payload in the newest schema.
func CheckPayload(c bus.Consumer, codec bus.Codec, payload []byte) error {
	return CheckStored(c, codec, &bus.Message{Payload: payload})
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
