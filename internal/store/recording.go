package store

import (
	"github.com/uptrace/bun"

	"github.com/asyncmonolith/asyncmonolith-go/bus"
)

// Record writes the events of a batch, before their messages, in the transaction db. It gets the registry
// whose consumers receive them.
type Record = func(db bun.IDB, registry *bus.Registry, batch []*bus.Message) error

// Recording is messages that deliver events. The producer calls Record at the end of its chain.
type Recording struct {
	Batch  []*bus.Message
	Record Record // nil for messages without events
}
