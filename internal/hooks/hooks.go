package hooks

import (
	"context"
	"reflect"

	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
	"github.com/asyncmonolith/asyncmonolith-go/internal/store"
)

// Of are the functions of each package. They are immutable once the packages are initialized.
var Of struct {
	Admin      Admin
	Poison     Poison
	EventLog   EventLog
	Projection Projection
}

// Admin has functions of package admin.
type Admin struct {
	Message func(row store.Pending) (message any)
	Claim   func(row store.HeldBy) (claim any)
}

// Poison has functions of package poison.
type Poison struct {
	Message func(row store.Poisoned) (message any)
	Rows    func(filter any) (store.PoisonFilter, error)
	Requeue func(ctx context.Context, s any, db bun.IDB, f store.PoisonFilter, limit int, consumers []string) (Requeued, error)
	Edit    func(ctx context.Context, s any, h bus.Handle, id int64, text []byte) error
}

// Requeued is the outcome of a batch that was requeued.
type Requeued struct {
	Result any              // a poison.Result
	Last   int64            // highest id in the batch; 0 when no message matched
	Rows   []store.Poisoned // with their new ids
}

// EventLog has functions of package eventlog. Package logaccess documents them, but for Newest, which
// returns the newest schema of an event type, or 0, and All, which returns all event types but those
// of the library.
type EventLog struct {
	Newest       func(types bus.EventTypes, name string) int
	All          func(types bus.EventTypes) []EventType
	Registry     func(log any) *bus.Registry
	Import       func(ctx context.Context, log any, tx bun.Tx, messages []*bus.Message) error
	Decode       func(ctx context.Context, log any, m *bus.Message) (bus.Payload, error)
	Snapshot     func(ctx context.Context, log any, db bun.IDB, stream, kind string) (store.Snapshot, bool, error)
	SaveSnapshot func(ctx context.Context, log any, tx bun.Tx, stream, kind string, snapshot store.Snapshot) error
}

// EventType is an event type.
type EventType struct {
	Name    string
	Aliases []string
	GoType  reflect.Type
	Schema  int // the newest
}

// Projection has functions of package projection. Package projections documents them.
type Projection struct {
	Resume     func(ctx context.Context, s *store.Store, db bun.IDB, name string, version int) (int, error)
	Newest     func(runner any, name string) (version int, ok bool)
	Unassigned func(ctx context.Context, runner any) (int64, error)
}

// Each of the following is called once, by the declaration of a blank variable: the library has no
// init functions.

// ProvideAdmin is called by package admin.
func ProvideAdmin(f Admin) struct{} {
	Of.Admin = f
	return struct{}{}
}

// ProvidePoison is called by package poison.
func ProvidePoison(f Poison) struct{} {
	Of.Poison = f
	return struct{}{}
}

// ProvideEventLog is called by package eventlog.
func ProvideEventLog(f EventLog) struct{} {
	Of.EventLog = f
	return struct{}{}
}

// ProvideProjection is called by package projection.
func ProvideProjection(f Projection) struct{} {
	Of.Projection = f
	return struct{}{}
}
