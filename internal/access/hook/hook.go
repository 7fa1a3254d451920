package hook

import (
	"context"
	"reflect"
	"time"

	"github.com/asyncmonolith/asyncmonolith-go/internal/wakeup"
)

// Functions are what package access calls. It documents them and has their types.
type Functions struct {
	Wakeups       func(registry any) *wakeup.Hub
	Events        func(registry any) any
	Dialect       func(registry any) any
	Heartbeat     func(registry any) (interval time.Duration, appVersion string)
	SetKey        func(registry, message any) error
	Deliver       func(ctx context.Context, chain, message, handler any) error
	RunProduce    func(ctx context.Context, chain, messages, write any) error
	CheckPayload  func(consumer, codec, message any) error
	Schema        func(registry, message any) int
	Upcasters     func(payload any) any
	Upcast        func(ctx context.Context, upcasters any, schema int, text []byte) ([]byte, error)
	DecodeFailure func(message any, goType reflect.Type, err error) error
	IsNewer       func(err error) bool
	GoType        func(consumer any) reflect.Type
	Reject        func(config any, text string)
	NewestName    func(config any, payloadType string) string
	ConsumeBatch  func(ctx context.Context, consumer, codec, batch any) []error
	Raw           func(consumer any) bool
	SetValue      func(config, key, value any)
	Value         func(config, key any) any
	PayloadTypes  func(registry any) []string
	Encode        func(registry, payload any) (payloadType string, text []byte, err error)
	Codec         func(ctx context.Context) any
	CheckMessage  func(message any, maxPayload int) error
	CheckTables   func(tables any) error
}

// Bus is immutable once package bus is initialized.
var Bus Functions

// Provide is called once, by the declaration of a blank variable of package bus: the library has no
// init functions.
func Provide(f Functions) struct{} {
	Bus = f
	return struct{}{}
}
